// The command line of one `lego` command: its specification, parsing and checks. Thread-safety: const after parsing.
//
// Options are `--name value` or `--name=value`; a key of the recipe, which contains a period, is `--section.key=value`. --output
// can also be given as `-o json`, `-ojson` and `-o=json`. Errors are FieldErrors of the option, for unknown ones with the nearest
// known option.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace legoai::cli {

struct Option {
  std::string name;   // without the dashes
  std::string value;  // what the help calls the value: "N", "FILE"; empty: a switch
  std::string help;
  bool repeated = false;
  bool required = false;
};

struct CommandSpec {
  std::string name;        // "plan"
  std::string summary;     // one line
  std::string positional;  // "RUN_DIR", "FILES..."; empty: none
  size_t least_positional = 0;
  size_t most_positional = 0;
  std::vector<Option> options;  // in addition to --output and --help, which every command has
  bool recipe_keys = false;     // accepts `--section.key=value`
  std::string details;          // additional lines of the help
  std::string example;
};

// The command's own options, those of every command that calls a server, and those of every command.
std::vector<Option> AllOptions(const CommandSpec& spec);

enum class Format { kTable, kJson, kYaml };

class Arguments {
 public:
  // `words`: what follows the command's name. Checks required options and the number of positional words, unless help is
  // requested.
  static absl::StatusOr<Arguments> Parse(const CommandSpec& spec, const std::vector<std::string>& words);

  bool help() const { return help_; }
  Format format() const { return format_; }
  const std::vector<std::string>& positional() const { return positional_; }
  // Keys of the recipe with their values, in the order given.
  const std::vector<std::pair<std::string, std::string>>& recipe_keys() const { return recipe_keys_; }

  bool Has(const std::string& name) const { return values_.count(name) > 0; }
  // The value (the last one of a repeated option); `otherwise` if it was not given.
  std::string Text(const std::string& name, const std::string& otherwise = "") const;
  std::vector<std::string> All(const std::string& name) const;
  // Nothing if it was not given. Errors: not a number, below `least` or above `most`.
  absl::StatusOr<std::optional<int64_t>> Integer(const std::string& name, int64_t least, int64_t most = INT64_MAX) const;
  absl::StatusOr<std::optional<double>> Real(const std::string& name, double least) const;

  // The same with another value of an option, or of a key of the recipe if `name` contains a period.
  Arguments With(const std::string& name, const std::string& value) const;

 private:
  absl::Status SetFormat(const std::string& text);

  bool help_ = false;
  Format format_ = Format::kTable;
  std::vector<std::string> positional_;
  std::vector<std::pair<std::string, std::string>> recipe_keys_;
  std::map<std::string, std::vector<std::string>> values_;
};

// Moves the command's name to the front: output options before it, as in `lego -o json list`, come right after it. Empty if no
// command is named.
std::vector<std::string> CommandFirst(std::vector<std::string> words);

// What `lego NAME --help` prints.
std::string HelpText(const CommandSpec& spec);

// Sizes as people write them on a command line. Thread-safety: a pure function.

// Bytes of "4GiB", "512 MiB", "1.5e9", or "10%" of `whole`. Units are binary, B to TiB. Nothing for other text, or for numbers
// that are negative or not finite.
std::optional<double> ReadBytes(absl::string_view text, double whole);

}  // namespace legoai::cli
