import java.util.Base64;
import java.util.Scanner;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentials;
import software.amazon.awssdk.auth.credentials.AwsSessionCredentials;
import software.amazon.msk.auth.iam.internals.AWS4SignedPayloadGenerator;
import software.amazon.msk.auth.iam.internals.AuthenticationRequestParams;

/** Signs requests of AWS_MSK_IAM by Amazon's own library. A line in: host, access key, secret key, session token ("-" for none),
 * each in base64; a line out: the JSON object that a client sends. */
public class SignMskIam {
    public static void main(String[] arguments) throws Exception {
        AWS4SignedPayloadGenerator generator = new AWS4SignedPayloadGenerator();
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String[] parts = lines.nextLine().split(" ");
            String[] texts = new String[4];
            for (int i = 0; i < 4; i++) {
                texts[i] = parts[i].equals("-") ? null : new String(Base64.getDecoder().decode(parts[i]));
            }
            AwsCredentials credentials = texts[3] == null
                ? AwsBasicCredentials.create(texts[1], texts[2])
                : AwsSessionCredentials.create(texts[1], texts[2], texts[3]);
            System.out.println(new String(
                generator.signedPayload(AuthenticationRequestParams.create(texts[0], credentials, "conformance"))));
            System.out.flush();
        }
    }
}
