use super::*;

fn sh(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

#[tokio::test]
async fn output_of_a_program_is_returned() {
    let script = sh("read line; echo \"<$line>\"; echo secret >&2");
    let output = run(script, b"question\n").await.unwrap();
    assert_eq!(*output, b"<question>\n");
    assert!(matches!(
        run(sh("exit 3"), b"").await,
        Err(ProcessError::Status)
    ));
}

#[tokio::test]
async fn program_need_not_read_its_input() {
    let input = vec![b'x'; 1 << 20];
    assert!(run(sh("exec <&-; exit 0"), &input).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn program_that_hangs_is_killed() {
    assert!(matches!(
        run(sh("exec sleep 600"), b"").await,
        Err(ProcessError::Timeout)
    ));
}

/// Otherwise a script around a program that hangs would leave one more child each time.
#[tokio::test]
async fn children_of_a_killed_program_are_killed() {
    let pid = tempfile::NamedTempFile::new().unwrap();
    let script = format!("sleep 600 & echo $! >'{}'; wait", pid.path().display());
    let mut hung = Box::pin(run(sh(&script), b""));
    let pid = loop {
        assert!(futures_util::poll!(&mut hung).is_pending());
        match std::fs::read_to_string(pid.path()).unwrap() {
            text if text.ends_with('\n') => break text,
            _ => tokio::task::yield_now().await,
        }
    };
    drop(hung);
    let state = format!("/proc/{}/stat", pid.trim());
    // A child that has ended stays a zombie until its parent waits for it.
    while std::fs::read_to_string(&state).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn output_beyond_the_limit_is_an_error() {
    assert!(matches!(
        run(
            sh("while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"),
            b""
        )
        .await,
        Err(ProcessError::TooMuch)
    ));
}

#[tokio::test]
async fn missing_program_is_an_error() {
    let missing = run(Command::new("/nowhere/at/all"), b"").await;
    assert!(matches!(
        missing,
        Err(ProcessError::Start(std::io::ErrorKind::NotFound))
    ));
    assert_eq!(
        find("sh", ["/nowhere", "/bin"].map(PathBuf::from)),
        Some("/bin/sh".into())
    );
    assert_eq!(find("nothing-of-this-name", [PathBuf::from("/bin")]), None);
}
