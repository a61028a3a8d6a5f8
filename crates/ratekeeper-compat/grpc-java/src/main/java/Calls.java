import io.grpc.CallOptions;
import io.grpc.Deadline;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Asks a server in every way that gRPC's library for Java has, and prints what it answers, a line each. */
final class Calls {
  private static final String RLS = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
  private static final String CHECK = "ratekeeper.v1.RateLimiterService/Check";
  private static final String HEALTH = "grpc.health.v1.Health/Check";

  /** Calls at once, on one connection. */
  private static final int AT_ONCE = 500;

  /** More than a short message, which is read in one piece. */
  private static final int LONG = 200_000;

  private final ManagedChannel channel;

  private Calls(String address) {
    channel = NettyChannelBuilder.forTarget(address).usePlaintext().build();
  }

  public static void main(String[] args) throws InterruptedException, ExecutionException {
    Calls calls = new Calls(args[0]);
    try {
      calls.all();
    } finally {
      calls.channel.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
    }
  }

  private void all() throws InterruptedException, ExecutionException {
    CallOptions plain = CallOptions.DEFAULT;
    tell("plain", RLS, ask("free", "a"), plain);
    tell("another domain", RLS, request("nowhere", "free", "a", 0), plain);
    tell("no message", RLS, new byte[0], plain);
    tell("no protobuf", RLS, new byte[] {(byte) 0xff}, plain);
    tell("long", RLS, ask("free", "x".repeat(LONG)), plain);
    tell("compressed", RLS, ask("free", "a"), plain.withCompression("gzip"));
    tell("deadline", RLS, ask("free", "a"), plain.withDeadline(Deadline.after(30, TimeUnit.SECONDS)));
    tell("passed deadline", RLS, ask("free", "a"), plain.withDeadline(Deadline.after(-1, TimeUnit.SECONDS)));
    tell("large answers refused", RLS, ask("free", "a"), plain.withMaxInboundMessageSize(1));
    tell("check", CHECK, request("d", "free", "a", 0), plain);
    tell("health", HEALTH, new byte[0], plain);
    tell("no such method", "nobody.Service/Method", new byte[0], plain);
    for (int i = 0; i < 7; i++) tell("limited " + i, RLS, ask("limited", "a"), plain);
    System.out.println("many: " + many(ask("free", "b")));
    System.out.println("many limited: " + many(ask("crowd", "b")));
  }

  /** Makes a call with metadata, and prints its status and the code of the answer. */
  private void tell(String name, String method, byte[] message, CallOptions options) {
    Metadata metadata = new Metadata();
    metadata.put(Metadata.Key.of("x-request-id", Metadata.ASCII_STRING_MARSHALLER), "1");
    metadata.put(Metadata.Key.of("x-octets-bin", Metadata.BINARY_BYTE_MARSHALLER), new byte[] {0, -1});
    var with = io.grpc.ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(metadata));
    try {
      System.out.println(name + ": OK " + code(ClientCalls.blockingUnaryCall(with, method(method), options, message)));
    } catch (StatusRuntimeException error) {
      Status status = error.getStatus();
      // Where and how late is the client's own word.
      String why = status.getCode() == Status.Code.DEADLINE_EXCEEDED ? "" : " " + status.getDescription();
      System.out.println(name + ": " + status.getCode() + why + " " + error.getTrailers());
    }
  }

  /** Counts the answers to many calls at once. */
  private TreeMap<String, Integer> many(byte[] message) throws InterruptedException, ExecutionException {
    List<Future<byte[]>> answers = new ArrayList<>();
    for (int i = 0; i < AT_ONCE; i++) {
      answers.add(ClientCalls.futureUnaryCall(channel.newCall(method(RLS), CallOptions.DEFAULT), message));
    }
    TreeMap<String, Integer> counts = new TreeMap<>();
    for (Future<byte[]> answer : answers) counts.merge(code(answer.get()), 1, Integer::sum);
    return counts;
  }

  /** The first field of an answer: all others may tell seconds, which pass. */
  private static String code(byte[] answer) {
    return HexFormat.of().formatHex(answer, 0, Math.min(2, answer.length));
  }

  private static byte[] ask(String key, String value) {
    return request("d", key, value, 1);
  }

  /** A request of Envoy's protocol, or of Ratekeeper's: both have the domain first, and then descriptors. */
  private static byte[] request(String domain, String key, String value, int hits) {
    byte[] entry = join(field(1, key.getBytes(StandardCharsets.UTF_8)), field(2, value.getBytes(StandardCharsets.UTF_8)));
    byte[] whole = join(field(1, domain.getBytes(StandardCharsets.UTF_8)), field(2, field(1, entry)));
    return hits == 0 ? whole : join(whole, new byte[] {0x18, (byte) hits});
  }

  private static byte[] field(int number, byte[] bytes) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.write(number << 3 | 2);
    int rest = bytes.length;
    for (; rest > 0x7f; rest >>= 7) out.write(rest & 0x7f | 0x80);
    out.write(rest);
    out.writeBytes(bytes);
    return out.toByteArray();
  }

  private static byte[] join(byte[] first, byte[] second) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.writeBytes(first);
    out.writeBytes(second);
    return out.toByteArray();
  }

  private static MethodDescriptor<byte[], byte[]> method(String name) {
    return MethodDescriptor.<byte[], byte[]>newBuilder()
        .setType(MethodDescriptor.MethodType.UNARY)
        .setFullMethodName(name)
        .setRequestMarshaller(new Octets())
        .setResponseMarshaller(new Octets())
        .build();
  }

  /** Messages as they are on the wire. */
  private static final class Octets implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] bytes) {
      return new ByteArrayInputStream(bytes);
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }
}
