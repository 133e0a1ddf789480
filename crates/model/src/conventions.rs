//! What a model's files say about texts beside its tokenizer: which tokens end one, and how a
//! conversation is written.
//!
//! From a folder: `generation_config.json` or `config.json` (`eos_token_id`), `tokenizer_config.json`
//! (`chat_template`, the texts of special tokens) or `chat_template.jinja`. From GGUF metadata:
//! `tokenizer.ggml.eos_token_id`, `eot_token_id`, `eom_token_id`, `tokenizer.chat_template`. Templates are
//! Jinja as Hugging Face transformers renders it.

use crate::ModelError;
use crate::error::shorten;
use crate::file::{display, read_text};
use crate::json::read_object;
use crate::load::GgufHeader;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, context};
use serde_json::{Map, Value};
use std::path::Path;

/// Bytes of the largest file that is read here.
const LIMIT: u64 = 16 << 20;

/// What ends texts, and how conversations are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextConventions {
    /// Tokens that end a text, in the order of the files; none when they name none.
    pub end_tokens: Vec<u32>,
    /// The chat template, if there is one.
    pub chat: Option<ChatTemplate>,
}

/// A chat template with the texts of the special tokens that it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTemplate {
    file: String,
    template: String,
    start_token: String,
    end_token: String,
}

impl ChatTemplate {
    /// A conversation of one question, up to where the answer begins.
    ///
    /// # Errors
    /// When the template cannot be rendered, or refuses the conversation.
    pub fn question(&self, question: &str) -> Result<String, ModelError> {
        let failed = |error: Error| ModelError::Malformed {
            file: self.file.clone(),
            place: "the chat template".to_owned(),
            expected: "a template that renders one question".to_owned(),
            actual: shorten(&error.to_string()),
        };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(failed)?);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        // A hostile template must end.
        environment.set_fuel(Some(1 << 20));
        environment.add_function("raise_exception", |text: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, text))
        });
        environment.add_template("chat", &self.template).map_err(failed)?;
        let template = environment.get_template("chat").map_err(failed)?;
        let messages = [context! { role => "user", content => question }];
        template
            .render(context! {
                messages => messages,
                add_generation_prompt => true,
                bos_token => self.start_token.as_str(),
                eos_token => self.end_token.as_str(),
            })
            .map_err(failed)
    }
}

/// The conventions in a Hugging Face folder.
///
/// # Errors
/// For a file that is there and unsound.
pub(crate) fn of_folder(folder: &Path) -> Result<TextConventions, ModelError> {
    let object = |name: &str| {
        let path = folder.join(name);
        if path.exists() { read_object(&path, LIMIT).map(Some) } else { Ok(None) }
    };
    let mut end_tokens = Vec::new();
    for name in ["generation_config.json", "config.json"] {
        let ids = object(name)?.as_ref().and_then(|map| map.get("eos_token_id")).map(ids);
        if let Some(ids) = ids.filter(|ids| !ids.is_empty()) {
            end_tokens = ids;
            break;
        }
    }
    let settings = object("tokenizer_config.json")?.unwrap_or_default();
    let (file, alone) = (folder.join("tokenizer_config.json"), folder.join("chat_template.jinja"));
    let (file, template) = if alone.exists() {
        (display(&alone), Some(read_text(&alone, LIMIT)?))
    } else {
        (display(&file), settings.get("chat_template").and_then(default_template))
    };
    let token = |key| token_text(&settings, key);
    let (start_token, end_token) = (token("bos_token"), token("eos_token"));
    let chat = template.map(|template| ChatTemplate { file, template, start_token, end_token });
    Ok(TextConventions { end_tokens, chat })
}

/// The conventions of GGUF metadata.
///
/// # Errors
/// For metadata of another type than these keys have.
pub(crate) fn of_gguf(header: &GgufHeader<'_>) -> Result<TextConventions, ModelError> {
    let mut end_tokens = Vec::new();
    let tokens = header.texts("tokenizer.ggml.tokens")?.unwrap_or_default();
    let id = |key: &str| -> Result<Option<u32>, ModelError> {
        let Some(value) = header.value(key)? else { return Ok(None) };
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        let known = id.filter(|&id| (id as usize) < tokens.len());
        known.map(Some).ok_or_else(|| header.refuse(key, "the id of a token", &value.to_string()))
    };
    for name in ["eos", "eot", "eom"] {
        if let Some(id) = id(&format!("tokenizer.ggml.{name}_token_id"))?
            && !end_tokens.contains(&id)
        {
            end_tokens.push(id);
        }
    }
    let text = |key| -> Result<String, ModelError> {
        let id = id(key)?;
        Ok(id.map_or(String::new(), |id| tokens[id as usize].to_owned()))
    };
    let chat = match header.value("tokenizer.chat_template")? {
        Some(Value::String(template)) => Some(ChatTemplate {
            file: header.file.to_owned(),
            template,
            start_token: text("tokenizer.ggml.bos_token_id")?,
            end_token: text("tokenizer.ggml.eos_token_id")?,
        }),
        _ => None,
    };
    Ok(TextConventions { end_tokens, chat })
}

/// An id, or a list of them.
fn ids(value: &Value) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(list) => list.iter().filter_map(id).collect(),
        one => id(one).into_iter().collect(),
    }
}

/// The template itself, or of several the one named `default`.
fn default_template(value: &Value) -> Option<String> {
    match value {
        Value::String(template) => Some(template.clone()),
        Value::Array(list) => {
            let default = list.iter().find(|entry| entry["name"] == "default")?;
            default["template"].as_str().map(str::to_owned)
        }
        _ => None,
    }
}

/// A special token's text, which is written plainly or within an object.
fn token_text(settings: &Map<String, Value>, key: &str) -> String {
    let value = settings.get(key).unwrap_or(&Value::Null);
    value.as_str().or_else(|| value["content"].as_str()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> ChatTemplate {
        ChatTemplate {
            file: "file".to_owned(),
            template: text.to_owned(),
            start_token: "<s>".to_owned(),
            end_token: "</s>".to_owned(),
        }
    }

    #[test]
    fn templates_render_as_transformers_renders_them() {
        let text = "{% for message in messages %}\n  {% if loop.first and message['role'] != 'system' \
                    %}{{ bos_token + 'sys\n' }}{% endif %}\n{{ '<' + message['role'] + '>' + \
                    message['content'].strip() + eos_token }}{% endfor %}\n\
                    {% if add_generation_prompt %}\n{{ '<assistant>' }}{% endif %}";
        let rendered = template(text).question("  why? ").unwrap();
        assert_eq!(rendered, "<s>sys\n<user>why?</s><assistant>");
    }

    #[test]
    fn templates_that_fail_or_do_not_end_are_refused() {
        for (text, reason) in [
            ("{{ raise_exception('no system') }}", "no system"),
            ("{% for", "unexpected"),
            (
                "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
                "fuel",
            ),
        ] {
            let error = template(text).question("x").unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("file"), "{error}");
        }
    }

    #[test]
    fn a_folder_is_read_in_its_spellings() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(of_folder(folder.path()).unwrap(), TextConventions::default());
        write("config.json", r#"{"eos_token_id": 7}"#);
        assert_eq!(of_folder(folder.path()).unwrap().end_tokens, [7]);
        write("generation_config.json", r#"{"eos_token_id": [2, 5]}"#);
        write(
            "tokenizer_config.json",
            r#"{"eos_token": {"content": "</s>"}, "bos_token": null,
                "chat_template": [{"name": "tool_use", "template": "x"},
                                  {"name": "default", "template": "{{ eos_token }}"}]}"#,
        );
        let found = of_folder(folder.path()).unwrap();
        assert_eq!(found.end_tokens, [2, 5]);
        assert_eq!(found.chat.unwrap().question("x").unwrap(), "</s>");
        write("chat_template.jinja", "{{ messages[0].content }}!");
        let chat = of_folder(folder.path()).unwrap().chat.unwrap();
        assert_eq!(chat.question("x").unwrap(), "x!");
    }
}
