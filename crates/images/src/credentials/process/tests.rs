use futures_util::FutureExt;

use super::*;

fn sh(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

impl Runner {
    /// Takes as many permits as there are.
    pub(in crate::credentials) async fn all_slots(&self) -> Vec<Permit> {
        let mut turns = Vec::new();
        for registry in 0..RUNS {
            turns.push(self.acquire(&registry.to_string(), &Tenant::Operator).await.unwrap());
        }
        turns
    }
}

/// Runs a program as the operator would.
async fn run(command: Command, input: &[u8]) -> Result<Output, ProcessError> {
    let turn = Runner::default().acquire("a.b", &Tenant::Operator).await.unwrap();
    super::run(&turn, command, input).await
}

#[tokio::test]
async fn gives_what_the_program_writes() {
    let script = sh("read line; echo \"<$line>\"; echo secret >&2");
    let output = run(script, b"question\n").await.unwrap();
    assert_eq!(*output, b"<question>\n");
    assert!(matches!(run(sh("exit 3"), b"").await, Err(ProcessError::Status)));
}

#[tokio::test]
async fn a_program_need_not_read() {
    let input = vec![b'x'; 1 << 20];
    assert!(run(sh("exec <&-; exit 0"), &input).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn ends_what_does_not_end() {
    assert!(matches!(run(sh("exec sleep 600"), b"").await, Err(ProcessError::Timeout)));
}

/// Otherwise a script around a program that hangs would leave one more child each time.
#[tokio::test]
async fn what_a_program_has_started_ends_with_it() {
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

/// Returns a permit for a Pod of this namespace, if the run may begin at once.
fn turn(runner: &Runner, registry: &str, namespace: &str) -> Option<Permit> {
    runner.acquire(registry, &Tenant::of(namespace)).now_or_never()?.ok()
}

#[tokio::test]
async fn made_up_accounts_of_one_namespace_leave_runs_for_others() {
    let runner = Runner::default();
    let account = |number: usize| format!("{number}.dkr.ecr.us-east-1.amazonaws.com");
    let held: Vec<_> = (0..64).filter_map(|number| turn(&runner, &account(number), "attacker")).collect();
    assert_eq!(held.len(), 2, "half of the runs");
    let others: Vec<_> = (0..2).filter_map(|number| turn(&runner, &account(number), "victim")).collect();
    assert_eq!(others.len(), 2, "the other half is for others, also at the same registry");
}

#[tokio::test]
async fn reads_no_more_than_it_must() {
    assert!(matches!(
        run(sh("while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"), b"").await,
        Err(ProcessError::TooMuch)
    ));
}

#[tokio::test]
async fn says_when_there_is_no_program() {
    let missing = run(Command::new("/nowhere/at/all"), b"").await;
    assert!(matches!(missing, Err(ProcessError::Start(std::io::ErrorKind::NotFound))));
    assert_eq!(find("sh", ["/nowhere", "/bin"].map(PathBuf::from)), Some("/bin/sh".into()));
    assert_eq!(find("nothing-of-this-name", [PathBuf::from("/bin")]), None);
}
