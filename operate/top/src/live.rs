//! The terminal: keys come in, a thread brings snapshots of the gateway.

use crate::app::Key;
use crate::source::Lists;
use crate::{App, Snapshot, View, draw, source};
use natgate_http::AskError;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

/// Time to wait for a key before the next snapshot is looked for.
const PATIENCE: Duration = Duration::from_millis(50);

/// Lists are asked for once in so many snapshots: they may be long.
const SELDOM: usize = 5;

/// A failure that ends the live screen.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The terminal refuses.
    #[error("the terminal cannot be used: {0}; `natgate top --once` needs none")]
    Terminal(#[from] io::Error),
    /// The gateway did not answer the first time.
    #[error(transparent)]
    Gateway(#[from] AskError),
}

/// Shows a gateway until somebody presses q.
///
/// # Errors
/// [`Failure`].
pub fn run(socket: &Path, interval: Duration) -> Result<(), Failure> {
    let mut app = App::new(View::Rates);
    // A gateway that does not answer is an error before the screen is taken.
    app.take(source::look(socket, Some(Lists { search: "" }))?);
    let (sender, snapshots) = sync_channel(1);
    let (searches, receiver) = channel();
    let place = socket.to_owned();
    let work = move || bring(&place, interval, &receiver, &sender);
    thread::Builder::new().name("source".into()).spawn(work)?;
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, &mut app, &snapshots, &searches);
    ratatui::try_restore()?;
    Ok(shown?)
}

/// A snapshot, or the reason why there is none.
type News = Result<Snapshot, String>;

/// Brings a snapshot once an interval, and at once for a new search, until the screen is closed.
fn bring(socket: &Path, interval: Duration, searches: &Receiver<String>, news: &SyncSender<News>) {
    let mut search = String::new();
    for number in 0_usize.. {
        let is_new = match searches.recv_timeout(interval) {
            Ok(new) => {
                search = new;
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let wants_lists = is_new || number.is_multiple_of(SELDOM);
        let lists = wants_lists.then_some(Lists { search: &search });
        let snapshot = source::look(socket, lists).map_err(|error| error.to_string());
        if news.send(snapshot).is_err() {
            return;
        }
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    app: &mut App,
    news: &Receiver<News>,
    searches: &Sender<String>,
) -> io::Result<()> {
    loop {
        terminal.draw(|frame| draw(frame, app))?;
        if event::poll(PATIENCE)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let is_typing = app.typed.is_some();
            if ends(key, is_typing) {
                return Ok(());
            }
            if let Some(key) = meaning(key.code, is_typing) {
                app.press(key);
                if key == Key::Send {
                    // The thread ends only after this loop.
                    let _ = searches.send(app.search.clone());
                }
            }
        }
        match news.try_recv() {
            Ok(Ok(snapshot)) => app.take(snapshot),
            Ok(Err(trouble)) => app.trouble = Some(trouble),
            Err(_) => {}
        }
    }
}

fn ends(key: KeyEvent, is_typing: bool) -> bool {
    let is_interrupt =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    is_interrupt || !is_typing && matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

fn meaning(code: KeyCode, is_typing: bool) -> Option<Key> {
    match code {
        KeyCode::Enter if is_typing => Some(Key::Send),
        KeyCode::Esc if is_typing => Some(Key::GiveUp),
        KeyCode::Backspace if is_typing => Some(Key::Erase),
        KeyCode::Char(letter) if is_typing => Some(Key::Letter(letter)),
        _ if is_typing => None,
        KeyCode::Tab | KeyCode::Right => Some(Key::Next),
        KeyCode::BackTab | KeyCode::Left => Some(Key::Previous),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::Char('s') => Some(Key::Sort),
        KeyCode::Char('p' | ' ') => Some(Key::Pause),
        KeyCode::Char('/') => Some(Key::Find),
        _ => None,
    }
}
