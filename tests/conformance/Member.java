import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;

/**
 * A member of a group: arguments are a topic and settings, "name=value" each. Prints "assigned|revoked|record nanoTime …" a line;
 * leaves when standard input ends.
 */
public class Member {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        for (String setting : Arrays.copyOfRange(arguments, 1, arguments.length))
            settings.put(setting.split("=", 2)[0], setting.split("=", 2)[1]);
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        settings.put("key.deserializer", bytes);
        settings.put("value.deserializer", bytes);
        Thread main = Thread.currentThread();
        Thread waiting = new Thread(() -> {
            try { while (System.in.read() >= 0); } catch (Exception ended) { }
            main.interrupt();
        });
        waiting.setDaemon(true);
        waiting.start();
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(List.of(arguments[0]), new ConsumerRebalanceListener() {
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) { say("assigned", partitions); }
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) { say("revoked", partitions); }
        });
        while (waiting.isAlive()) {
            try {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100)))
                    System.out.println("record " + System.nanoTime() + " " + record.partition() + " " + record.offset());
            } catch (org.apache.kafka.common.errors.InterruptException ended) {
                break;
            }
        }
        Thread.interrupted();
        consumer.close();
    }

    static void say(String what, Collection<TopicPartition> partitions) {
        StringBuilder line = new StringBuilder(what + " " + System.nanoTime());
        for (TopicPartition each : partitions) line.append(' ').append(each.partition());
        System.out.println(line);
    }
}
