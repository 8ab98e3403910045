// Scans TOML text without its parser, which is recursive and builds a table for every part of a dotted key, so that unbounded
// nesting must be refused beforehand. Thread-safety: pure functions.
//
// For invalid TOML this holds up to the position of the error, beyond which no parser gets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace legoai {

// The line, counted from 1, in which tables and lists first nest deeper than `most`; nothing if they never do.
std::optional<int64_t> FindDeepNesting(std::string_view text, int most);

// The key whose value is at a position of the text.
struct TomlPlace {
  std::string key;    // "training.steps", as in the file; for an inline table the key of the table
  std::string value;  // the number, or word, that ends there
};
// `line` and `column`, counted from 1 and in characters, are those after the value's last character.
TomlPlace FindTomlPlace(std::string_view text, int64_t line, int64_t column);

}  // namespace legoai
