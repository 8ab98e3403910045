#include "server/cli/arguments.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "proto/text.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

const Option kOutput = {"output", "table|json|yaml", "how to print the result (-o); table is for people"};
const Option kHelp = {"help", "", "this text (-h)"};

absl::Status UnknownOption(const CommandSpec& spec, const std::string& name) {
  std::vector<std::string> known;
  for (const Option& option : AllOptions(spec)) known.push_back("--" + option.name);
  const std::string word = "--" + name;
  if (name == "json" || name == "yaml" || name == "table")
    return FieldError(word, "", absl::StrCat("unknown option; write -o ", name));
  return FieldError(
      word, "", absl::StrCat("unknown option; did you mean ", Nearest(word, known), "? `lego ", spec.name, " --help` lists all"));
}

std::string Usage(const CommandSpec& spec) {
  std::string text = "lego " + spec.name;
  if (!spec.positional.empty()) {
    absl::StrAppend(&text,
                    spec.least_positional > 0 ? absl::StrCat(" ", spec.positional) : absl::StrCat(" [", spec.positional, "]"));
  }
  for (const Option& option : spec.options) {
    std::string one = "--" + option.name + (option.value.empty() ? "" : " " + option.value) + (option.repeated ? "..." : "");
    absl::StrAppend(&text, option.required ? absl::StrCat(" ", one) : absl::StrCat(" [", one, "]"));
  }
  if (spec.recipe_keys) absl::StrAppend(&text, " [--SECTION.KEY=VALUE...]");
  return text;
}

// `-ojson`, as `-o json`.
bool IsOutputWithValue(const std::string& word) { return word.size() > 2 && word.starts_with("-o") && word[2] != '='; }

// Breaks at spaces so that lines stay within `width`; later lines are indented.
std::string Wrap(const std::string& text, size_t width, size_t indent) {
  std::string out;
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find(' ', at), text.size());
    if (column > 0 && column + 1 + (end - at) > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += text.substr(at, end - at);
    column += end - at;
    at = end + 1;
  }
  return out;
}

}  // namespace

std::vector<Option> AllOptions(const CommandSpec& spec) {
  std::vector<Option> options = spec.options;
  const auto calls = [](const Option& option) { return option.name == "server"; };
  if (std::any_of(options.begin(), options.end(), calls)) {
    for (const Option& option : CallOptions()) {
      const auto same = [&](const Option& own) { return own.name == option.name; };
      if (std::none_of(spec.options.begin(), spec.options.end(), same)) options.push_back(option);
    }
  }
  options.push_back(kOutput);
  options.push_back(kHelp);
  return options;
}

absl::StatusOr<Arguments> Arguments::Parse(const CommandSpec& spec, const std::vector<std::string>& words) {
  Arguments arguments;
  const std::vector<Option> options = AllOptions(spec);
  bool only_positional = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word = !only_positional && IsOutputWithValue(words[i]) ? "-o=" + words[i].substr(2) : words[i];
    if (only_positional || word == "-" || word.empty() || word[0] != '-') {
      arguments.positional_.push_back(word);
      continue;
    }
    if (word == "--") {
      only_positional = true;
      continue;
    }
    const size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    if (name == "-o") name = "--output";
    if (name == "-h") name = "--help";
    if (name.rfind("--", 0) != 0) return UnknownOption(spec, name.substr(1));
    name = name.substr(2);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = word.substr(equals + 1);
    const auto option = std::find_if(options.begin(), options.end(), [&](const Option& o) { return o.name == name; });
    const bool recipe_key = option == options.end() && spec.recipe_keys && name.find('.') != std::string::npos;
    if (option == options.end() && !recipe_key) return UnknownOption(spec, name);
    const bool needs_value = recipe_key || !option->value.empty();
    if (!needs_value && value) return FieldError("--" + name, *value, "takes no value");
    if (needs_value && !value) {
      if (i + 1 == words.size()) return FieldError("--" + name, "", "needs a value");
      value = words[++i];
    }
    if (recipe_key) {
      for (const auto& [key, before] : arguments.recipe_keys_) {
        if (key == name) return FieldError("--" + name, *value, "is given twice, before with " + before);
      }
      arguments.recipe_keys_.emplace_back(name, *value);
      continue;
    }
    if (name == "help") arguments.help_ = true;
    if (name == "output") {
      RETURN_IF_ERROR(arguments.SetFormat(*value));
    }
    std::vector<std::string>& values = arguments.values_[name];
    if (!option->repeated && !values.empty()) return FieldError("--" + name, value.value_or(""), "is given twice");
    values.push_back(value.value_or(""));
  }
  if (arguments.help_) return arguments;
  for (const Option& option : options) {
    if (option.required && !arguments.Has(option.name)) {
      return FieldError("--" + option.name, "", absl::StrCat("is needed. Example: ", spec.example));
    }
  }
  const size_t count = arguments.positional_.size();
  if (count < spec.least_positional) {
    return FieldError(spec.positional, "", absl::StrCat("is needed. Example: ", spec.example));
  }
  if (count > spec.most_positional) {
    const std::string takes =
        spec.most_positional == 1 ? absl::StrCat(": it takes one ", spec.positional, " at a time") : std::string();
    return FieldError(spec.positional.empty() ? "lego " + spec.name : spec.positional,
                      arguments.positional_[spec.most_positional],
                      absl::StrCat("is one word too many", takes, ". Example: ", spec.example));
  }
  return arguments;
}

std::vector<std::string> CommandFirst(std::vector<std::string> words) {
  size_t before = 0;  // words that say how to print
  while (before < words.size()) {
    const std::string& word = words[before];
    const bool alone = word == "-o" || word == "--output";
    if (!alone && !word.starts_with("-o") && !word.starts_with("--output=")) break;
    before += alone ? 2 : 1;
  }
  if (before >= words.size()) return {};
  std::rotate(words.begin(), words.begin() + static_cast<ptrdiff_t>(before), words.begin() + static_cast<ptrdiff_t>(before) + 1);
  return words;
}

absl::Status Arguments::SetFormat(const std::string& text) {
  if (text == "table") {
    format_ = Format::kTable;
  } else if (text == "json") {
    format_ = Format::kJson;
  } else if (text == "yaml") {
    format_ = Format::kYaml;
  } else {
    return FieldError("--output", text, "must be table, json or yaml");
  }
  return absl::OkStatus();
}

std::string Arguments::Text(const std::string& name, const std::string& otherwise) const {
  const auto found = values_.find(name);
  return found == values_.end() ? otherwise : found->second.back();
}

std::vector<std::string> Arguments::All(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

absl::StatusOr<std::optional<int64_t>> Arguments::Integer(const std::string& name, int64_t least, int64_t most) const {
  if (!Has(name)) return std::optional<int64_t>();
  const std::string text = Text(name);
  int64_t value = 0;
  const bool fits = absl::SimpleAtoi(text, &value);
  if (fits ? value > most : IsWholeNumber(text) && text[0] != '-')
    return FieldError("--" + name, CutText(text), OutOfRangeText(/*too_small=*/false, least, most));
  if (!fits || value < least) {
    return FieldError("--" + name, CutText(text), absl::StrCat("must be a whole number of at least ", least));
  }
  return std::optional<int64_t>(value);
}

absl::StatusOr<std::optional<double>> Arguments::Real(const std::string& name, double least) const {
  if (!Has(name)) return std::optional<double>();
  double value = 0;
  const bool hexadecimal = Text(name).find_first_of("xX") != std::string::npos;
  if (hexadecimal || !absl::SimpleAtod(Text(name), &value) || !std::isfinite(value) || value < least) {
    return FieldError("--" + name, Text(name), absl::StrCat("must be a number of at least ", least));
  }
  return std::optional<double>(value);
}

Arguments Arguments::With(const std::string& name, const std::string& value) const {
  Arguments other = *this;
  if (name.find('.') == std::string::npos) {
    other.values_[name] = {value};
    return other;
  }
  std::erase_if(other.recipe_keys_, [&](const auto& given) { return given.first == name; });
  other.recipe_keys_.emplace_back(name, value);
  return other;
}

std::string HelpText(const CommandSpec& spec) {
  std::string text = absl::StrCat(spec.summary, "\n\nusage: ", Wrap(Usage(spec), 110, 9), "\n\n");
  for (const Option& option : AllOptions(spec)) {
    const std::string left = "--" + option.name + (option.value.empty() ? "" : " " + option.value);
    absl::StrAppend(&text, absl::StrFormat("  %-26s ", left), Wrap(option.help, 90, 29), "\n");
  }
  if (spec.recipe_keys) {
    absl::StrAppend(&text, absl::StrFormat("  %-26s ", "--SECTION.KEY=VALUE"),
                    "a key of the recipe, which wins over the file; the values of a list stand between commas\n");
  }
  if (!spec.details.empty()) absl::StrAppend(&text, "\n", spec.details, "\n");
  absl::StrAppend(&text, "\nexample:\n  ", spec.example, "\n");
  return text;
}

std::optional<double> ReadBytes(absl::string_view text, double whole) {
  struct Unit {
    const char* name;
    double bytes;
  };
  const Unit units[] = {{"%", whole / 100},     {"TiB", std::exp2(40)}, {"GiB", std::exp2(30)},
                        {"MiB", std::exp2(20)}, {"KiB", std::exp2(10)}, {"B", 1}};
  double scale = 1, number = 0;
  for (const Unit& unit : units) {
    if (!absl::EndsWithIgnoreCase(text, unit.name)) continue;
    scale = unit.bytes;
    text.remove_suffix(absl::string_view(unit.name).size());
    break;
  }
  text = absl::StripAsciiWhitespace(text);
  // No sign, "inf", "nan" or "0x10".
  const bool plain = !text.empty() && (absl::ascii_isdigit(text[0]) || text[0] == '.') &&
                     text.find_first_not_of("0123456789.eE+-") == absl::string_view::npos;
  if (!plain || !absl::SimpleAtod(text, &number) || !std::isfinite(number * scale)) return std::nullopt;
  return number * scale;
}

}  // namespace legoai::cli
