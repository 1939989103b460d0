//! The samples on their way to what they should have, as a table and then as lines.

use std::time::{Duration, Instant};

use landfall_testkit::Operator;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::nodes::Nodes;
use super::samples::Sample;
use super::screen::Screen;
use super::watch::{Board, Change, News};
use super::{DEADLINE, End, Error};
use crate::output::Output;

/// How often to see whether the operator still runs.
const PULSE: Duration = Duration::from_secs(1);
/// How much news may wait to be shown: more than all samples make.
const BACKLOG: usize = 1024;

/// What is seen, what is still to come, and where it is drawn.
pub(super) struct Show<'a> {
    board: Board,
    screen: Screen<'a>,
    missing: Vec<Sample>,
    deadline: Instant,
    news: mpsc::Receiver<News>,
    /// The operator that this demo runs, if it runs one.
    operator: Option<&'a Operator>,
}

impl<'a> Show<'a> {
    /// A show of what `news` tells, and where that is to be sent.
    pub(super) fn new(
        missing: Vec<Sample>,
        operator: Option<&'a Operator>,
        output: &'a Output,
    ) -> (Self, mpsc::Sender<News>) {
        let (sender, news) = mpsc::channel(BACKLOG);
        let (board, screen) = (Board::default(), Screen::new(output));
        let deadline = Instant::now() + DEADLINE;
        (Self { board, screen, missing, deadline, news, operator }, sender)
    }

    /// Expects nothing of a sample that this cluster cannot have.
    pub(super) fn leave_out(&mut self, service: &str) {
        self.missing.retain(|sample| sample.service != service);
    }

    /// Draws until every sample has what it should have, and lets an address move if there are nodes; then, unless
    /// that is all, says what to try next and tells every change until the user ends it.
    pub(super) async fn play(
        &mut self,
        once: bool,
        nodes: Option<&mut Nodes>,
        next_steps: &str,
    ) -> Result<End, Error> {
        self.until_settled().await?;
        if let Some(nodes) = nodes {
            self.move_address(nodes, once).await?;
        }
        if once {
            return Ok(End::Done);
        }
        self.screen.below(next_steps);
        loop {
            self.step().await?;
            self.screen.lines(&self.board);
        }
    }

    /// Switches off the node that holds an address, and on again unless that is all.
    async fn move_address(&mut self, nodes: &mut Nodes, once: bool) -> Result<(), Error> {
        let Some((address, holder)) = self.board.held() else { return Ok(()) };
        self.screen.below(&format!("\n{holder} holds {address}, and is switched off now"));
        let moved = nodes.switch_off(address, &holder).await?;
        let deadline = Instant::now() + DEADLINE;
        let wanted = Some((address, moved.to.clone()));
        while self.board.held() != wanted {
            if Instant::now() >= deadline {
                let holder = self.board.held();
                return Err(Error::Late(vec![format!("{wanted:?} is told as {holder:?}")]));
            }
            self.step().await?;
        }
        self.board.moved(address, moved.after);
        self.screen.table(&self.board);
        if !once {
            nodes.switch_on(&holder).await?;
            let holder = format!("{holder} is on again, and {} keeps the address", moved.to);
            self.screen.below(&holder);
        }
        Ok(())
    }

    async fn until_settled(&mut self) -> Result<(), Error> {
        loop {
            self.missing.retain(|sample| self.board.shortfall(sample).is_some());
            if self.missing.is_empty() {
                return Ok(());
            }
            if Instant::now() >= self.deadline {
                let short = |sample: &Sample| self.board.shortfall(sample);
                return Err(Error::Late(self.missing.iter().filter_map(short).collect()));
            }
            self.step().await?;
            self.screen.table(&self.board);
        }
    }

    /// Takes in what the watches told, or notices that the operator is gone.
    async fn step(&mut self) -> Result<(), Error> {
        let mut batch = Vec::new();
        tokio::select! {
            _ = self.news.recv_many(&mut batch, BACKLOG) => {}
            () = sleep_until((Instant::now() + PULSE).into()) => {}
        }
        for (at, change) in batch {
            if let Change::OtherPool(pool) = change {
                return Err(Error::OtherPool(pool));
            }
            self.board.take_in(change, at);
        }
        let Some(operator) = self.operator else { return Ok(()) };
        match operator.process().exit_status() {
            None => Ok(()),
            Some(status) => Err(Error::OperatorEnded {
                status: status.to_string(),
                tail: operator.log_tail(25),
            }),
        }
    }
}
