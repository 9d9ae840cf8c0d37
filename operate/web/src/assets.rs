//! The page's files, compiled in, and the meaning of each drop reason as the engine has it.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use natgate_engine::DropReason;
use serde_json::{Map, Value};
use std::sync::LazyLock;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const JSON: &str = "application/json";

/// Path, kind, content.
const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("../assets/index.html")),
    ("/icon.svg", SVG, include_str!("../assets/icon.svg")),
    ("/style.css", CSS, include_str!("../assets/style.css")),
    ("/theme.js", SCRIPT, include_str!("../assets/theme.js")),
    ("/main.js", SCRIPT, include_str!("../assets/main.js")),
    ("/api.js", SCRIPT, include_str!("../assets/api.js")),
    ("/chart.js", SCRIPT, include_str!("../assets/chart.js")),
    ("/format.js", SCRIPT, include_str!("../assets/format.js")),
    ("/health.js", SCRIPT, include_str!("../assets/health.js")),
    ("/heatmap.js", SCRIPT, include_str!("../assets/heatmap.js")),
    ("/panels.js", SCRIPT, include_str!("../assets/panels.js")),
    ("/search.js", SCRIPT, include_str!("../assets/search.js")),
];

/// Path at which the page reads what drop reasons mean.
const REASONS: &str = "/drop-reasons.json";

static REASON_TEXTS: LazyLock<String> = LazyLock::new(|| reasons().to_string());

/// A route for each file.
pub(crate) fn routes() -> Router {
    let files = FILES.iter().fold(Router::new(), |router, &(path, kind, content)| {
        router.route(path, get(move || async move { file(kind, content) }))
    });
    files.route(REASONS, get(|| async { file(JSON, &REASON_TEXTS) }))
}

/// Browsers ask again each time, so that another version of natgate never meets an old script.
fn file(kind: &'static str, content: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], content)
}

/// Each reason's name and what it means.
fn reasons() -> Value {
    let entry = |reason: &DropReason| (reason.name().to_owned(), reason.text().into());
    Value::Object(DropReason::ALL.iter().map(entry).collect::<Map<_, _>>())
}
