import it.unimi.dsi.webgraph.BVGraph;
import it.unimi.dsi.webgraph.algo.HyperBall;

/** java Harmonic STEM LOG2M: prints the harmonic centrality of each node, by HyperBall on the transpose STEM-t. */
public class Harmonic {
    public static void main(String[] arguments) throws Exception {
        BVGraph graph = BVGraph.load(arguments[0]), transpose = BVGraph.load(arguments[0] + "-t");
        HyperBall balls =
                new HyperBall(transpose, graph, Integer.parseInt(arguments[1]), null, 0, 0, 0, false, false, true, null, 1);
        balls.run();
        StringBuilder lines = new StringBuilder();
        for (float value : balls.sumOfInverseDistances) lines.append(value).append('\n');
        System.out.print(lines);
        balls.close();
    }
}
