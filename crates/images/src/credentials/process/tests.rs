use futures_util::FutureExt;

use super::*;

fn sh(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

fn runner(time: Duration) -> Runner {
    Runner::new(Limits { time, output: 1000, runs: 1 })
}

impl Runner {
    /// As many runs as there may be.
    pub(in crate::credentials) async fn all_slots(&self) -> Vec<Permit> {
        let mut turns = Vec::new();
        for registry in 0..self.limits.runs {
            turns.push(self.turn(&registry.to_string(), &Tenant::Operator).await.unwrap());
        }
        turns
    }
}

const LONG: Duration = Duration::from_secs(60);

/// Runs a program as the operator would.
async fn run(runner: Runner, command: Command, input: &[u8]) -> (Result<Output, ProcessError>, Runner) {
    let turn = runner.turn("a.b", &Tenant::Operator).await.unwrap();
    (runner.run(&turn, command, input).await, runner)
}

#[tokio::test]
async fn gives_what_the_program_writes() {
    let script = sh("read line; echo \"<$line>\"; echo secret >&2");
    let output = run(runner(LONG), script, b"question\n").await.0.unwrap();
    assert_eq!(*output, b"<question>\n");
    assert!(matches!(run(runner(LONG), sh("exit 3"), b"").await.0, Err(ProcessError::Status)));
}

#[tokio::test]
async fn a_program_need_not_read() {
    let input = vec![b'x'; 1 << 20];
    assert!(run(runner(LONG), sh("exec <&-; exit 0"), &input).await.0.is_ok());
}

#[tokio::test]
async fn ends_what_does_not_end() {
    let (hung, impatient) = run(runner(Duration::from_millis(200)), sh("exec sleep 600"), b"").await;
    assert!(matches!(hung, Err(ProcessError::Timeout)));
    assert!(impatient.turn("a.b", &Tenant::Operator).await.is_ok(), "the turn is free again");
}

/// Or a script around a program that hangs would leave one more of it each time.
#[tokio::test]
async fn what_a_program_has_started_ends_with_it() {
    let pid = tempfile::NamedTempFile::new().unwrap();
    let script = format!("sleep 600 & echo $! >'{}'; wait", pid.path().display());
    let runner = runner(LONG);
    let mut hung = Box::pin(run(runner, sh(&script), b""));
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

/// A run for a Pod of this namespace, if it may begin at once.
fn turn(runner: &Runner, registry: &str, namespace: &str) -> Option<Permit> {
    runner.turn(registry, &Tenant::of(namespace)).now_or_never()?.ok()
}

#[tokio::test]
async fn made_up_accounts_of_one_namespace_leave_runs_for_others() {
    let runner = Runner::new(Limits::default());
    let account = |number: usize| format!("{number}.dkr.ecr.us-east-1.amazonaws.com");
    let held: Vec<_> = (0..64).filter_map(|number| turn(&runner, &account(number), "attacker")).collect();
    assert_eq!(held.len(), 2, "half of the runs");
    let others: Vec<_> = (0..2).filter_map(|number| turn(&runner, &account(number), "victim")).collect();
    assert_eq!(others.len(), 2, "the other half is for others, also at the same registry");
}

#[tokio::test]
async fn reads_no_more_than_it_must() {
    assert!(matches!(
        run(runner(LONG), sh("while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"), b"").await.0,
        Err(ProcessError::TooMuch)
    ));
}

#[tokio::test]
async fn says_when_there_is_no_program() {
    let missing = run(runner(LONG), Command::new("/nowhere/at/all"), b"").await.0;
    assert!(matches!(missing, Err(ProcessError::Start(std::io::ErrorKind::NotFound))));
    assert_eq!(find("sh", ["/nowhere", "/bin"].map(PathBuf::from)), Some("/bin/sh".into()));
    assert_eq!(find("nothing-of-this-name", [PathBuf::from("/bin")]), None);
}
