import com.fasterxml.jackson.databind.*;
import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.protocol.Readable;

/** What Kafka's own classes make of a line "json|bytes class version payload": "hex json" in response, or "! why not". */
public class Oracle {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            if (line.equals("errors"))
                for (Errors e : Errors.values())
                    out.print(e.code() + ":" + e.name() + ":" + (e.exception() instanceof RetriableException) + " ");
            else try {
                String[] part = line.split(" ", 4);
                short version = Short.parseShort(part[2]);
                Class<?> type = Class.forName("org.apache.kafka.common.message." + part[1]);
                Class<?> converter = Class.forName(type.getName() + "JsonConverter");
                Message message;
                if (part[0].equals("json")) {
                    message = (Message) converter.getMethod("read", JsonNode.class, short.class).invoke(null, mapper.readTree(part[3]), version);
                } else {
                    ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(part[3]));
                    message = (Message) type.getConstructor(Readable.class, short.class).newInstance(new ByteBufferAccessor(bytes), version);
                    if (bytes.hasRemaining()) throw new IllegalStateException(bytes.remaining() + " bytes left over");
                }
                ByteBuffer encoded = MessageUtil.toByteBufferAccessor(message, version).buffer();
                Object json = converter.getMethod("write", type, short.class, boolean.class).invoke(null, message, version, true);
                out.print(HexFormat.of().formatHex(encoded.array(), 0, encoded.limit()) + " " + json);
            } catch (Throwable e) {
                Throwable cause = e instanceof java.lang.reflect.InvocationTargetException ? e.getCause() : e;
                out.print("! " + cause.toString().replace('\n', ' '));
            }
            out.println();
            if (!in.ready()) out.flush();
        }
    }
}
