use super::*;
use crate::config::Config;

/// Returns a command and all its subcommands.
fn with_subcommands(command: &clap::Command) -> Vec<clap::Command> {
    let mut commands = vec![command.clone()];
    for subcommand in command.get_subcommands() {
        if subcommand.get_name() != "help" {
            commands.extend(with_subcommands(subcommand));
        }
    }
    commands
}

#[test]
fn help_fits_80_columns_and_has_an_example() {
    let mut command = Cli::command();
    command.build();
    for mut command in with_subcommands(&command) {
        for help in [
            command.render_help().to_string(),
            command.render_long_help().to_string(),
        ] {
            for line in help.lines() {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
            let has_example = help.contains("Example");
            assert_eq!(
                has_example,
                command.get_subcommands().next().is_none(),
                "{}:\n{help}",
                command.get_name()
            );
        }
    }
}

#[test]
fn file_without_flag_is_refused_with_a_hint() {
    for arguments in [
        &["web.yaml"][..],
        &["-f", "a.yaml", "web.yaml"],
        &["-f", "a.yaml", "web.yaml", "c.yaml"],
    ] {
        let error =
            Cli::command().try_get_matches_from([&["tolerarch", "check"][..], arguments].concat());
        let error = error.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("'web.yaml' for '[FILE]...': files are named by -f: check -f web.yaml"),
            "{error}"
        );
        assert_eq!(error.exit_code(), 2);
    }
}

#[test]
fn plugin_usage_names_kubectl() {
    let usage = |program: &str| command(Some(Path::new(program))).render_usage().to_string();
    assert!(usage("/opt/kubectl-tolerarch").contains("kubectl tolerarch"));
    assert!(usage("tolerarch").contains("Usage: tolerarch"));
}

#[test]
fn docker_configuration_of_the_user_is_the_default() {
    let home = tempfile::tempdir().unwrap();
    let environment = Environment::from_iter([("HOME", home.path())]);
    let files = |config: &Config| config.credentials.docker_configs.clone();
    let mut config = Config::default();
    apply_user_defaults(&mut config, &environment);
    assert!(files(&config).is_empty(), "no file exists yet");
    std::fs::create_dir(home.path().join(".docker")).unwrap();
    let default = home.path().join(".docker/config.json");
    std::fs::write(&default, "{}").unwrap();
    apply_user_defaults(&mut config, &environment);
    assert_eq!(files(&config), [default]);
    config.credentials.docker_configs = vec!["~/other.json".into(), "/third.json".into()];
    apply_user_defaults(&mut config, &environment);
    assert_eq!(
        files(&config),
        [home.path().join("other.json"), "/third.json".into()]
    );
    let with_directory = Environment::from_iter([("DOCKER_CONFIG", home.path().join(".docker"))]);
    let mut config = Config::default();
    apply_user_defaults(&mut config, &with_directory);
    assert_eq!(files(&config).len(), 1);
}

#[test]
fn tilde_is_expanded_in_every_key_with_a_path() {
    let home = Path::new("/home/user");
    let environment = Environment::from_iter([("HOME", home)]);
    let text = "server: {certFile: ~/tls.crt, keyFile: /tls.key}\nregistries: {hostsDir: ~/certs.d, hosts: {a.b: {caFile: ~/ca.crt}}}\n\
        credentials: {directory: '~', providers: {config: ~/p.yaml, binDir: ~other/bin}}";
    let mut config = Config::parse(text).unwrap();
    apply_user_defaults(&mut config, &environment);
    assert_eq!(config.server.files.certificate, home.join("tls.crt"));
    assert_eq!(config.server.files.key, Path::new("/tls.key"));
    assert_eq!(config.registries.hosts_dir, Some(home.join("certs.d")));
    assert_eq!(
        config.registries.hosts["a.b"].ca_file,
        Some(home.join("ca.crt"))
    );
    assert_eq!(config.credentials.directory, Some(home.to_owned()));
    assert_eq!(
        config.credentials.providers.config,
        Some(home.join("p.yaml"))
    );
    assert_eq!(
        config.credentials.providers.bin_dir,
        Some("~other/bin".into()),
        "another user's home"
    );
}
