import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.FileInputStream;
import java.io.IOException;
import java.util.zip.Inflater;

/**
 * Reads an export with nothing but DataInputStream and Inflater, and prints what it found, a line each:
 * "key NODEID HEX", "page NODEID OFFSET LENGTH SUM" (SUM: of the content's unsigned bytes), "node NODEID IN... / OUT...".
 * It knows the formats from their description only; the Python readers and this one must agree.
 */
public final class ReadExport {
    private static DataInputStream open(String folder, String name) throws IOException {
        return new DataInputStream(new BufferedInputStream(new FileInputStream(folder + "/" + name)));
    }

    private static void end(DataInputStream in, String name) throws IOException {
        if (in.read() != -1) throw new IOException(name + " goes on after its end");
        in.close();
    }

    private static int mapping(String folder) throws IOException {
        DataInputStream in = open(folder, "urlmapping");
        int count = in.readInt();
        byte[] key = new byte[20];
        for (int id = 0; id < count; id++) {
            in.readFully(key);
            StringBuilder hex = new StringBuilder();
            for (byte b : key) hex.append(String.format("%02x", b));
            System.out.println("key " + id + " " + hex);
        }
        end(in, "urlmapping");
        return count;
    }

    private static void content(String folder, int count) throws Exception {
        DataInputStream in = open(folder, "content");
        DataInputStream offsets = open(folder, "offsets");
        long at = 0;
        for (int id = 0; id < count; id++) {
            if (offsets.readInt() != id) throw new IOException("offsets: no NodeID " + id);
            if (offsets.readLong() != at) throw new IOException("offsets: not " + at + " for " + id);
            int size = in.readInt();
            byte[] data = new byte[size];
            in.readFully(data);
            if (in.readInt() != size) throw new IOException("content: sizes differ at " + at);
            long length = 0;
            long sum = 0;
            byte[] block = new byte[4096];
            Inflater inflater = new Inflater();
            inflater.setInput(data);
            while (!inflater.finished()) {
                int got = inflater.inflate(block);
                if (got == 0 && inflater.needsInput()) throw new EOFException("content: stream of " + id + " is cut");
                length += got;
                for (int i = 0; i < got; i++) sum += block[i] & 0xff;
            }
            if (inflater.getRemaining() != 0) throw new IOException("content: stream of " + id + " ends early");
            inflater.end();
            System.out.println("page " + id + " " + at + " " + length + " " + sum);
            at += 8L + size;
        }
        end(in, "content");
        end(offsets, "offsets");
    }

    private static void graph(String folder, int count) throws IOException {
        DataInputStream in = open(folder, "webgraph");
        if (in.readInt() != count) throw new IOException("webgraph: not " + count + " nodes");
        for (int id = 0; id < count; id++) {
            int edges = in.readInt();
            int ins = in.readInt();
            StringBuilder line = new StringBuilder("node " + id);
            for (int edge = 0; edge < edges; edge++) {
                if (edge == ins) line.append(" /");
                line.append(" ").append(in.readInt());
            }
            if (edges == ins) line.append(" /");
            System.out.println(line);
        }
        end(in, "webgraph");
    }

    public static void main(String[] args) throws Exception {
        int count = mapping(args[0]);
        content(args[0], count);
        graph(args[0], count);
    }
}
