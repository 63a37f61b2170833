import java.io.*;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.internals.*;
import org.apache.kafka.common.*;

/** A line "strategy|topic:partitions,…|member:instance:topic+topic,…" in, "member=topic-0 topic-1;…" out, by Kafka's own assignors. */
public class Assign {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split("\\|", -1);
            Map<String, List<PartitionInfo>> topics = new HashMap<>();
            for (String each : parts[1].split(",")) {
                if (each.isEmpty()) continue;
                String[] topic = each.split(":");
                List<PartitionInfo> partitions = new ArrayList<>();
                for (int i = 0; i < Integer.parseInt(topic[1]); i++)
                    partitions.add(new PartitionInfo(topic[0], i, Node.noNode(), new Node[0], new Node[0]));
                topics.put(topic[0], partitions);
            }
            Map<String, ConsumerPartitionAssignor.Subscription> members = new HashMap<>();
            for (String each : parts[2].split(",")) {
                String[] member = each.split(":", -1);
                List<String> subscribed = member[2].isEmpty() ? List.of() : Arrays.asList(member[2].split("\\+"));
                ConsumerPartitionAssignor.Subscription subscription = new ConsumerPartitionAssignor.Subscription(subscribed);
                if (!member[1].isEmpty()) subscription.setGroupInstanceId(Optional.of(member[1]));
                members.put(member[0], subscription);
            }
            AbstractPartitionAssignor assignor = parts[0].equals("range") ? new RangeAssignor() : new RoundRobinAssignor();
            StringBuilder out = new StringBuilder();
            new TreeMap<>(assignor.assignPartitions(topics, members)).forEach((member, partitions) -> {
                out.append(member).append('=');
                List<String> names = new ArrayList<>();
                for (TopicPartition each : partitions) names.add(each.topic() + "-" + each.partition());
                Collections.sort(names);
                out.append(String.join(" ", names)).append(';');
            });
            System.out.println(out);
        }
    }
}
