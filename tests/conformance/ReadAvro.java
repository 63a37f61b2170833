import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/**
 * Reads values with Apache Avro's Java library. A line on stdin is a case: the writer's schema, the reader's (or nothing), and
 * the payloads in hexadecimal, separated by tabs. The response is a line of JSON: a text for a pair of schemas that is rejected,
 * else a list with [value], or a text for a value that is rejected, for each payload. Values: floats and doubles as the text of
 * their bits, bytes in hexadecimal, a union's as {"branch": number, "value": value}.
 */
public class ReadAvro {
  public static void main(String[] args) throws Exception {
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      out.write(response(line.split("\t", -1)));
      out.write('\n');
      if (!in.ready()) {
        out.flush();
      }
    }
    out.flush();
  }

  private static String response(String[] parts) {
    var text = new StringBuilder();
    GenericDatumReader<Object> reader;
    Schema read;
    try {
      Schema written = new Schema.Parser().parse(parts[0]);
      read = parts[1].isEmpty() ? written : new Schema.Parser().parse(parts[1]);
      Schema.applyAliases(written, read);
      reader = new GenericDatumReader<>(written, read);
    } catch (RuntimeException error) {
      quote(text, String.valueOf(error.getMessage()));
      return text.toString();
    }
    text.append('[');
    for (int i = 2; i < parts.length; i++) {
      if (i > 2) {
        text.append(',');
      }
      int start = text.length();
      try {
        BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(HexFormat.of().parseHex(parts[i]), null);
        Object value = reader.read(null, decoder);
        if (!decoder.isEnd()) {
          throw new IllegalStateException("bytes are left over");
        }
        text.append('[');
        put(text, read, value);
        text.append(']');
      } catch (Exception | OutOfMemoryError | StackOverflowError error) {
        text.setLength(start);
        quote(text, error.getClass().getSimpleName() + " " + error.getMessage());
      }
    }
    return text.append(']').toString();
  }

  private static void put(StringBuilder text, Schema schema, Object value) {
    switch (schema.getType()) {
      case NULL, BOOLEAN, INT, LONG -> text.append(value);
      case FLOAT -> text.append('"').append(Float.floatToIntBits((Float) value)).append('"');
      case DOUBLE -> text.append('"').append(Double.doubleToLongBits((Double) value)).append('"');
      case STRING, ENUM -> quote(text, value.toString());
      case BYTES -> {
        ByteBuffer bytes = ((ByteBuffer) value).duplicate();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        quote(text, HexFormat.of().formatHex(copy));
      }
      case FIXED -> quote(text, HexFormat.of().formatHex(((GenericFixed) value).bytes()));
      case ARRAY -> {
        text.append('[');
        String separator = "";
        for (Object item : (Iterable<?>) value) {
          text.append(separator);
          put(text, schema.getElementType(), item);
          separator = ",";
        }
        text.append(']');
      }
      case MAP -> {
        text.append('{');
        String separator = "";
        for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
          text.append(separator);
          quote(text, entry.getKey().toString());
          text.append(':');
          put(text, schema.getValueType(), entry.getValue());
          separator = ",";
        }
        text.append('}');
      }
      case RECORD -> {
        text.append('{');
        String separator = "";
        for (Schema.Field field : schema.getFields()) {
          text.append(separator);
          quote(text, field.name());
          text.append(':');
          put(text, field.schema(), ((IndexedRecord) value).get(field.pos()));
          separator = ",";
        }
        text.append('}');
      }
      case UNION -> {
        int branch = GenericData.get().resolveUnion(schema, value);
        text.append("{\"branch\":").append(branch).append(",\"value\":");
        put(text, schema.getTypes().get(branch), value);
        text.append('}');
      }
    }
  }

  private static void quote(StringBuilder text, String value) {
    text.append('"');
    for (int i = 0; i < value.length(); i++) {
      char c = value.charAt(i);
      if (c < 0x20 || c > 0x7e || c == '"' || c == '\\') {
        text.append(String.format("\\u%04x", (int) c));
      } else {
        text.append(c);
      }
    }
    text.append('"');
  }
}
