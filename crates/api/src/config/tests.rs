use super::*;
use mpshare_core::DeviceSelector;

fn ok(text: &str) -> AcceptedConfig {
    parse("test", text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_presets_of_the_tke_document_mean_whole_halves_and_quarters() {
    for (replicas, text) in [(1, "1"), (2, "2"), (4, "4")] {
        let config = ok(&format!(
            "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: {text}\n"
        ));
        let entry = &config.node.sharing[0];
        assert_eq!(entry.cut, mpshare_core::Cut::Replicas(replicas));
        assert_eq!(entry.resource.as_str(), "nvidia.com/gpu");
        assert_eq!(entry.devices, DeviceSelector::All);
        assert_eq!(config.warnings, Vec::<String>::new());
    }
}

#[test]
fn an_empty_text_means_whole_cards() {
    for text in ["", "\n", "# nothing\n", "{}", "---\n", "null", "version: v1", "sharing: {}"] {
        let config = ok(text);
        assert_eq!(config.node.sharing, Vec::new(), "{text:?}");
        assert_eq!(config.node.exclusive_resource.as_str(), "nvidia.com/gpu");
        assert_eq!(config.plugin, PluginOptions::default());
    }
}
