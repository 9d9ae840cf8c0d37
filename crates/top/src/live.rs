//! The terminal: keys come in, a thread brings what the gateway tells.

use crate::app::Key;
use crate::{App, Snapshot, View, draw, source};
use natgate_http::AskError;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How long a key is waited for before what has come is looked at.
const PATIENCE: Duration = Duration::from_millis(50);

/// Subscribers are asked for once in so many looks: they may be many.
const SELDOM: usize = 5;

/// Why it ended.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The terminal does not do what it is told.
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
    // Who cannot be reached is told before the screen is taken.
    app.take(source::look(socket, true)?);
    let (sender, receiver) = sync_channel(1);
    let place = socket.to_owned();
    thread::Builder::new().name("source".into()).spawn(move || bring(&place, interval, &sender))?;
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, &mut app, &receiver);
    ratatui::try_restore()?;
    Ok(shown?)
}

type Told = Result<Snapshot, String>;

/// Asks again and again, until nobody wants it any more.
fn bring(socket: &Path, interval: Duration, sender: &SyncSender<Told>) {
    for number in 0_usize.. {
        thread::sleep(interval);
        let told = source::look(socket, number.is_multiple_of(SELDOM));
        if sender.send(told.map_err(|error| error.to_string())).is_err() {
            return;
        }
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    app: &mut App,
    receiver: &Receiver<Told>,
) -> io::Result<()> {
    loop {
        terminal.draw(|frame| draw(frame, app))?;
        if event::poll(PATIENCE)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            if ends(key) {
                return Ok(());
            }
            if let Some(key) = meaning(key.code) {
                app.press(key);
            }
        }
        match receiver.try_recv() {
            Ok(Ok(snapshot)) => app.take(snapshot),
            Ok(Err(trouble)) => app.trouble = Some(trouble),
            Err(_) => {}
        }
    }
}

fn ends(key: KeyEvent) -> bool {
    matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
        || key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

fn meaning(code: KeyCode) -> Option<Key> {
    match code {
        KeyCode::Tab | KeyCode::Right => Some(Key::Next),
        KeyCode::BackTab | KeyCode::Left => Some(Key::Previous),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::Char('s') => Some(Key::Sort),
        KeyCode::Char('p' | ' ') => Some(Key::Pause),
        _ => None,
    }
}
