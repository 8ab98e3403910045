// What can be seen of TOML text without its parser, which builds a table for every part of a dotted key and calls itself to take
// them apart: text that nests without end must be refused before. Thread-safety: pure functions.
//
// Of text that is no TOML this holds up to the place where it goes wrong, and no parser gets further.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace legoai {

// The line, counted from 1, in which tables and lists first lie in each other deeper than `most`; nothing where they never do.
std::optional<int64_t> FindDeepNesting(std::string_view text, int most);

// Which key's value lies at a place of the text.
struct TomlPlace {
  std::string key;    // "training.steps", as the file has it; of an inline table the key that has the table
  std::string value;  // the number, or word, that ends there
};
// `line` and `column`, counted from 1 and in characters, are those after the value's last character.
TomlPlace FindTomlPlace(std::string_view text, int64_t line, int64_t column);

}  // namespace legoai
