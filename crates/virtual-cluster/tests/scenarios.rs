//! Runs every story in `scenarios/`.

use std::path::Path;

#[test]
fn every_scenario_comes_out_as_told() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| file.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    assert!(files.len() >= 10, "only {} scenarios were found in {}", files.len(), folder.display());
    let failures: Vec<String> = files.iter().filter_map(|path| run(path).err()).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn run(path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // A broken invariant panics: then the story's name must come with it.
    println!("running {name}");
    aktis_virtual_cluster::scenario::run(&name, &text)
}
