import com.amazonaws.services.schemaregistry.deserializers.GlueSchemaRegistryKafkaDeserializer;
import com.amazonaws.services.schemaregistry.deserializers.protobuf.ProtobufSchemaParser;
import com.amazonaws.services.schemaregistry.serializers.GlueSchemaRegistryKafkaSerializer;
import com.amazonaws.services.schemaregistry.serializers.json.JsonDataWithSchema;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.DynamicMessage;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Base64;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentialsProvider;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;

/** Values through the serializers of AWS Glue's own library, against the endpoint in the first argument. A line in: "write", the data
 * format, the compression, the topic, the name of a Protobuf message, the schema and the bare value in base64; the framed value out.
 * Or "read", the data format and the framed value; the bare value out. An error out begins with "!". */
public class GlueSerde {
    private static final AwsCredentialsProvider CREDENTIALS =
        StaticCredentialsProvider.create(AwsBasicCredentials.create("AKIAEXAMPLE", "secret"));

    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String[] parts = lines.nextLine().split(" ");
            try {
                byte[] found = parts[0].equals("write") ? written(arguments[0], parts) : read(arguments[0], parts);
                System.out.println(Base64.getEncoder().encodeToString(found));
            } catch (Exception error) {
                Throwable cause = error;
                while (cause.getCause() != null) cause = cause.getCause();
                System.out.println("!" + cause.toString().replace("\n", " "));
            }
            System.out.flush();
        }
    }

    private static byte[] written(String endpoint, String[] parts) throws Exception {
        Map<String, Object> configs = configs(endpoint, parts[1]);
        configs.put("compression", parts[2]);
        configs.put("schemaAutoRegistrationEnabled", "true");
        String schema = new String(bytes(parts[5]), StandardCharsets.UTF_8);
        byte[] value = bytes(parts[6]);
        Object data;
        if (parts[1].equals("AVRO")) {
            Schema parsed = new Schema.Parser().parse(schema);
            data = new GenericDatumReader<>(parsed).read(null, DecoderFactory.get().binaryDecoder(value, null));
        } else if (parts[1].equals("JSON")) {
            data = JsonDataWithSchema.builder(schema, new String(value, StandardCharsets.UTF_8)).build();
        } else {
            data = DynamicMessage.parseFrom(descriptor(schema, parts[4]), value);
        }
        try (GlueSchemaRegistryKafkaSerializer serializer = new GlueSchemaRegistryKafkaSerializer(CREDENTIALS, configs)) {
            return serializer.serialize(parts[3], data);
        }
    }

    private static byte[] read(String endpoint, String[] parts) throws Exception {
        try (GlueSchemaRegistryKafkaDeserializer deserializer =
            new GlueSchemaRegistryKafkaDeserializer(CREDENTIALS, configs(endpoint, parts[1]))) {
            Object found = deserializer.deserialize("topic", bytes(parts[2]));
            if (found instanceof GenericRecord record) {
                ByteArrayOutputStream out = new ByteArrayOutputStream();
                BinaryEncoder encoder = EncoderFactory.get().directBinaryEncoder(out, null);
                new GenericDatumWriter<>(record.getSchema()).write(record, encoder);
                return out.toByteArray();
            }
            if (found instanceof JsonDataWithSchema json) {
                return json.getPayload().getBytes(StandardCharsets.UTF_8);
            }
            DynamicMessage message = (DynamicMessage) found;
            byte[] name = (message.getDescriptorForType().getFullName() + "\n").getBytes(StandardCharsets.UTF_8);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            out.write(name);
            out.write(message.toByteArray());
            return out.toByteArray();
        }
    }

    private static Map<String, Object> configs(String endpoint, String dataFormat) {
        Map<String, Object> configs = new HashMap<>();
        configs.put("region", "eu-west-1");
        configs.put("endpoint", endpoint);
        configs.put("registry.name", "shop");
        configs.put("dataFormat", dataFormat);
        configs.put("avroRecordType", "GENERIC_RECORD");
        return configs;
    }

    private static Descriptor descriptor(String schema, String name) throws Exception {
        Deque<Descriptor> waiting = new ArrayDeque<>(ProtobufSchemaParser.parse(schema, "schema.proto").getMessageTypes());
        while (!waiting.isEmpty()) {
            Descriptor found = waiting.pop();
            if (found.getFullName().equals(name)) return found;
            waiting.addAll(found.getNestedTypes());
        }
        throw new IllegalArgumentException("no message " + name);
    }

    private static byte[] bytes(String text) {
        return Base64.getDecoder().decode(text);
    }
}
