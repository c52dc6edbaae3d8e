import it.unimi.dsi.webgraph.ArcListASCIIGraph;
import it.unimi.dsi.webgraph.BVGraph;
import it.unimi.dsi.webgraph.ImmutableGraph;
import it.unimi.dsi.webgraph.NodeIterator;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.InputStream;
import java.util.Arrays;
import java.util.Random;
import java.util.zip.GZIPInputStream;

/**
 * Compares a BV graph with lists of successors, read in sequence and at random; or with a list of arcs.
 *
 * <p>java ReadGraph lists STEM FILE: FILE has int32 numbers: of each node how many successors it has, and these.
 *
 * <p>java ReadGraph arcs STEM FILE: FILE is gzip, with a line for each arc.
 *
 * <p>It prints how many nodes the graph has, and how many of them were wrong.
 */
public class ReadGraph {
    public static void main(String[] arguments) throws Exception {
        ImmutableGraph graph = BVGraph.load(arguments[1]);
        boolean isOfArcs = arguments[0].equals("arcs");
        int[][] lists = isOfArcs ? fromArcs(arguments[2], graph.numNodes()) : fromLists(arguments[2], graph.numNodes());
        System.out.println(graph.numNodes() + " " + (wrongInSequence(arguments[1], lists) + wrongAtRandom(graph, lists)));
    }

    static int[][] fromLists(String file, int nodes) throws Exception {
        int[][] lists = new int[nodes][];
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(file)))) {
            for (int node = 0; node < nodes; node++) {
                lists[node] = new int[in.readInt()];
                for (int i = 0; i < lists[node].length; i++) lists[node][i] = in.readInt();
            }
            if (in.read() != -1) throw new IllegalStateException("there are more nodes");
        }
        return lists;
    }

    static int[][] fromArcs(String file, int nodes) throws Exception {
        int[][] lists = new int[nodes][0];
        try (InputStream in = new GZIPInputStream(new FileInputStream(file))) {
            NodeIterator iterator = ArcListASCIIGraph.loadOnce(in).nodeIterator();
            while (iterator.hasNext()) {
                int node = iterator.nextInt();
                lists[node] = Arrays.copyOf(iterator.successorArray(), iterator.outdegree());
            }
        }
        return lists;
    }

    static int wrongInSequence(String stem, int[][] lists) throws Exception {
        int wrong = 0, seen = 0;
        NodeIterator iterator = BVGraph.loadOffline(stem).nodeIterator();
        for (; iterator.hasNext(); seen++) {
            int node = iterator.nextInt();
            if (!Arrays.equals(lists[node], Arrays.copyOf(iterator.successorArray(), iterator.outdegree()))) wrong++;
        }
        return wrong + lists.length - seen;
    }

    static int wrongAtRandom(ImmutableGraph graph, int[][] lists) {
        int wrong = 0;
        Random random = new Random(1);
        for (int i = 0; i < lists.length; i++) {
            int node = random.nextInt(lists.length);
            if (!Arrays.equals(lists[node], Arrays.copyOf(graph.successorArray(node), graph.outdegree(node)))) wrong++;
        }
        return wrong;
    }
}
