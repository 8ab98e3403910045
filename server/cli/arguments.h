// The command line of one `lego` command: what it may say, parsed and checked. Thread-safety: const after parsing.
//
// Options are `--name value` or `--name=value`; a key of the recipe, which has a point in it, is `--section.key=value`.
// --output is `-o json`, `-ojson` and `-o=json` too. Errors are FieldErrors of the option, unknown ones with the
// nearest known.
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
  std::string value;  // what stands for the value in the help: "N", "FILE"; empty: a switch
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
  std::vector<Option> options;  // beside --output and --help, which every command has
  bool recipe_keys = false;     // takes `--section.key=value`
  std::string details;          // further lines of the help
  std::string example;
};

// Those of the command, and those that every command has.
std::vector<Option> AllOptions(const CommandSpec& spec);

enum class Format { kTable, kJson, kYaml };

class Arguments {
 public:
  // `words`: what follows the command's name. Required options and the number of positional words are checked, unless help is
  // asked for.
  static absl::StatusOr<Arguments> Parse(const CommandSpec& spec, const std::vector<std::string>& words);

  bool help() const { return help_; }
  Format format() const { return format_; }
  const std::vector<std::string>& positional() const { return positional_; }
  // Keys of the recipe with their values, in the order given.
  const std::vector<std::pair<std::string, std::string>>& recipe_keys() const { return recipe_keys_; }

  bool Has(const std::string& name) const { return values_.count(name) > 0; }
  // The value, of a repeated option the last; `otherwise` if it was not given.
  std::string Text(const std::string& name, const std::string& otherwise = "") const;
  std::vector<std::string> All(const std::string& name) const;
  // Nothing if it was not given. Errors: not a number, below `least` or above `most`.
  absl::StatusOr<std::optional<int64_t>> Integer(const std::string& name, int64_t least, int64_t most = INT64_MAX) const;
  absl::StatusOr<std::optional<double>> Real(const std::string& name, double least) const;

  // The same with another value of an option, or, where `name` has a point, of a key of the recipe.
  Arguments With(const std::string& name, const std::string& value) const;

 private:
  absl::Status SetFormat(const std::string& text);

  bool help_ = false;
  Format format_ = Format::kTable;
  std::vector<std::string> positional_;
  std::vector<std::pair<std::string, std::string>> recipe_keys_;
  std::map<std::string, std::vector<std::string>> values_;
};

// `words` of a call with the command's name first: what is said of the output before it, as in `lego -o json list`, comes right
// behind it. Empty where no command is named.
std::vector<std::string> CommandFirst(std::vector<std::string> words);

// What `lego NAME --help` prints.
std::string HelpText(const CommandSpec& spec);

// Sizes as people write them on a command line. Thread-safety: a pure function.

// Bytes of "4GiB", "512 MiB", "1.5e9", or of "10%" as a share of `whole`. Units are binary, B to TiB. Nothing for other text, and
// for numbers that are negative or not finite.
std::optional<double> ReadBytes(absl::string_view text, double whole);

}  // namespace legoai::cli
