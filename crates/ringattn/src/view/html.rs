//! The page as one file: markup, style, code and data put together.
//!
//! The data may hold text from a foreign file. As JSON it is escaped so that it cannot end the element
//! that holds it; the page's code never writes it as markup.

use super::error::ViewError;
use super::scene::Scene;

const MARKUP: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// In the order in which they build on each other.
const CODE: [&str; 10] = [
    include_str!("page/draw.js"),
    include_str!("page/state.js"),
    include_str!("page/ring.js"),
    include_str!("page/holding.js"),
    include_str!("page/work.js"),
    include_str!("page/timeline.js"),
    include_str!("page/reduction.js"),
    include_str!("page/tiles.js"),
    include_str!("page/controls.js"),
    include_str!("page/main.js"),
];

/// One HTML file that shows the scene.
///
/// # Errors
/// When the scene holds a number that JSON has no word for, which is a fault of this program.
pub fn page(scene: &Scene) -> Result<String, ViewError> {
    let data = serde_json::to_string(scene).map_err(|error| ViewError::Form {
        expected: "data that JSON can hold",
        reason: error.to_string(),
    })?;
    // In the order in which the markup names them.
    let parts = [
        ("/*STYLE*/", STYLE.to_owned()),
        ("/*DATA*/", escaped(&data)),
        ("/*CODE*/", CODE.join("\n")),
    ];
    let mut text = String::with_capacity(MARKUP.len() + data.len() * 2);
    let mut rest = MARKUP;
    for (mark, part) in &parts {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        text.push_str(before);
        text.push_str(part);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

/// JSON that is safe inside a `script` element: there `<` could end it or begin a comment.
fn escaped(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}
