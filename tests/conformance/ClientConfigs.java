import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Prints the settings of Kafka's consumer and producer, one a line: name, type and default, with tabs between. */
public class ClientConfigs {
    public static void main(String[] arguments) {
        for (ConfigDef definition : new ConfigDef[] {ConsumerConfig.configDef(), ProducerConfig.configDef()}) {
            for (Map.Entry<String, ConfigDef.ConfigKey> each : definition.configKeys().entrySet()) {
                Object value = each.getValue().defaultValue;
                String text = value == ConfigDef.NO_DEFAULT_VALUE ? "required" : String.valueOf(value);
                System.out.println(each.getKey() + "\t" + each.getValue().type + "\t" + text);
            }
        }
    }
}
