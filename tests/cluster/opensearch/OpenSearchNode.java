import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.opensearch.analysis.common.CommonAnalysisPlugin;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** Starts a node of OpenSearch with two plug-ins. Arguments: the node's folder, then settings such as node.name=n1. */
public class OpenSearchNode extends Node {
    OpenSearchNode(Environment environment) {
        super(environment, List.of(Netty4Plugin.class, CommonAnalysisPlugin.class), true);
    }

    public static void main(String[] arguments) throws Exception {
        Settings.Builder settings = Settings.builder().put("path.home", arguments[0]);
        for (int place = 1; place < arguments.length; place++) {
            String[] pair = arguments[place].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        Path config = Path.of(arguments[0], "config");
        new OpenSearchNode(
            InternalSettingsPreparer.prepareEnvironment(settings.build(), Map.of(), config, () -> "node")).start();
        Thread.currentThread().join();
    }
}
