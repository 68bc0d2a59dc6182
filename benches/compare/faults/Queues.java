// Chronicle Queue for benches/compare/faults.py, which says what is read and written here.
//
//     java Queues.java chronicle put|take DIR FIRST END

import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.bytes.SyncMode;
import net.openhft.chronicle.queue.ChronicleQueue;

public class Queues {
    static final PrintStream OUT = System.out;

    /** As `message` in faults.py. */
    static byte[] message(long number) {
        ByteBuffer bytes = ByteBuffer.allocate((int) (64 + number * 7919 % 961));
        bytes.order(ByteOrder.LITTLE_ENDIAN).putLong(number);
        for (long x = number; bytes.hasRemaining();) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            bytes.put((byte) (x >> 56));
        }
        return bytes.array();
    }

    static void frame(byte[] bytes) {
        ByteBuffer length = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN);
        OUT.write(length.putInt(bytes.length).array(), 0, 4);
        OUT.write(bytes, 0, bytes.length);
        OUT.flush();
    }

    static void say(String line) {
        OUT.print(line + "\n");
        OUT.flush();
    }

    static void put(ChronicleQueue queue, long first, long end) throws IOException {
        var appender = queue.createAppender();
        for (long number = first; number < end; number++) {
            byte[] message = message(number);
            while (true) {
                try {
                    appender.writeBytes(Bytes.wrapForRead(message));
                    appender.sync();
                    break;
                } catch (Throwable error) {
                    say("!" + error.toString().replace('\n', ' '));
                    while (System.in.read() != '\n') {}
                }
            }
            say("+");
        }
        say(".");
        System.in.read();
    }

    static void take(ChronicleQueue queue) {
        var tailer = queue.createTailer("taker");
        Bytes<byte[]> bytes = Bytes.allocateElasticOnHeap();
        for (int failed = 0; failed < 100;) {
            try {
                bytes.clear();
                if (!tailer.readBytes(bytes)) return;
                frame(bytes.toByteArray());
            } catch (Throwable error) {
                OUT.write(new byte[] {-1, -1, -1, -1}, 0, 4);
                frame(error.toString().getBytes(StandardCharsets.UTF_8));
                failed++;
            }
        }
    }

    public static void main(String[] arguments) throws IOException {
        var builder = ChronicleQueue.singleBuilder(arguments[2]).syncMode(SyncMode.SYNC);
        try (ChronicleQueue queue = builder.build()) {
            if (arguments[1].equals("take")) take(queue);
            else put(queue, Long.parseLong(arguments[3]), Long.parseLong(arguments[4]));
        }
    }
}
