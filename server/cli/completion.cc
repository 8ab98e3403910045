#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "proto/errors.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/output.h"

namespace legoai::cli {
namespace {

// What may follow an option: the choices in its help, models and clusters of the catalogs.
std::vector<std::string> ValuesOf(const Option& option) {
  std::vector<std::string> values;
  if (option.name == "model") {
    values = model::ModelNames();
  } else if (option.name == "cluster") {
    for (const v1::Device& device : sim::ListDevices()) values.push_back(device.type() + ":");
  } else if (absl::StrContains(option.value, '|')) {
    values = absl::StrSplit(option.value, '|');
  }
  return values;
}

// Every option that has known values, once.
std::map<std::string, std::vector<std::string>> ValuesByOption(const std::vector<CommandSpec>& commands) {
  std::map<std::string, std::vector<std::string>> all;
  for (const CommandSpec& spec : commands) {
    for (const Option& option : AllOptions(spec)) {
      if (auto values = ValuesOf(option); !values.empty()) all[option.name] = std::move(values);
    }
  }
  return all;
}

// "--training.steps=" of every key, and "--training." of every section.
std::vector<std::string> KeyWords(bool sections) {
  std::vector<std::string> words;
  const auto* recipe = v1::Recipe::descriptor();
  for (int i = 0; i < recipe->field_count(); ++i) {
    const std::string section = "--" + recipe->field(i)->name() + ".";
    if (sections) words.push_back(section);
    const auto* type = recipe->field(i)->message_type();
    for (int k = 0; !sections && k < type->field_count(); ++k) words.push_back(section + type->field(k)->name() + "=");
  }
  return words;
}

bool TakesJob(const CommandSpec& spec) { return absl::EndsWith(spec.positional, "JOB"); }

std::vector<std::string> OptionWords(const CommandSpec& spec) {
  std::vector<std::string> words;
  for (const Option& option : AllOptions(spec)) words.push_back("--" + option.name);
  return words;
}

std::vector<std::string> Names(const std::vector<CommandSpec>& commands) {
  std::vector<std::string> names;
  for (const CommandSpec& spec : commands) names.push_back(spec.name);
  return names;
}

bool TakesFiles(const CommandSpec& spec) { return spec.positional != "JOB" && spec.positional != "NAME"; }

// Words of which one must follow the command: "bash|zsh|fish".
std::string Choices(const CommandSpec& spec) {
  const bool choices = absl::StrContains(spec.positional, '|') && absl::AsciiStrToLower(spec.positional) == spec.positional;
  return choices ? absl::StrReplaceAll(spec.positional, {{"|", " "}}) : "";
}

// The ids of jobs, of the command as it was called; a server that does not answer is not waited for.
constexpr char kJobs[] = "list 2>/dev/null | awk 'NR > 1 { print $1 }'";

std::string Words(const std::vector<std::string>& words) { return absl::StrJoin(words, " "); }

// What follows an option first; then, by the command, its options, keys of a recipe, jobs, files.
std::string BashScript(const std::vector<CommandSpec>& commands) {
  std::string script = absl::StrCat(
      "_lego() {\n  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} options= keys= jobs= files=1\n",
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"", Words(Names(commands)),
      " help\" -- \"$word\")); return; fi\n",
      "  if [ \"$word\" = = ]; then word=; elif [ \"$previous\" = = ]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi\n",
      "  case $previous in\n    -o) previous=--output ;;\n  esac\n  case $previous in\n");
  for (const auto& [option, values] : ValuesByOption(commands)) {
    absl::StrAppend(&script, "    --", option, ") COMPREPLY=($(compgen -W \"", Words(values), "\" -- \"$word\"))");
    if (option == "cluster") script += "; compopt -o nospace";
    if (option == "cluster" || option == "model") script += "; COMPREPLY+=($(compgen -f -- \"$word\"))";
    script += "; return ;;\n";
  }
  script += "  esac\n  case ${COMP_WORDS[1]} in\n";
  for (const CommandSpec& spec : commands) {
    absl::StrAppend(&script, "    ", spec.name, ") options=\"", Words(OptionWords(spec)), "\"", spec.recipe_keys ? " keys=1" : "",
                    TakesJob(spec) ? " jobs=1" : "", TakesFiles(spec) ? "" : " files=");
    if (!Choices(spec).empty()) {
      absl::StrAppend(&script, "; [[ $word = -* ]] || { COMPREPLY=($(compgen -W \"", Choices(spec),
                      "\" -- \"$word\")); return; }");
    }
    script += " ;;\n";
  }
  return absl::StrCat(script, "  esac\n  case $word in\n    --*.*) [ \"$keys\" ] && COMPREPLY=($(compgen -W \"",
                      Words(KeyWords(false)), "\" -- \"$word\")); compopt -o nospace; return ;;\n",
                      "    -*) COMPREPLY=($(compgen -W \"$options ${keys:+", Words(KeyWords(true)), "}\" -- \"$word\"))\n",
                      "      case ${COMPREPLY[0]} in *.) compopt -o nospace ;; esac; return ;;\n  esac\n",
                      "  if [ \"$files\" ]; then COMPREPLY=($(compgen -f -- \"$word\")); fi\n",
                      "  if [ \"$jobs\" ]; then COMPREPLY+=($(compgen -W \"$(timeout 2 \"${COMP_WORDS[0]}\" ", kJobs,
                      ")\" -- \"$word\")); fi\n}\ncomplete -o filenames -F _lego lego ./lego\n");
}

std::string Quoted(const std::string& text) { return "'" + absl::StrReplaceAll(text, {{"'", "'\\''"}}) + "'"; }

// As in bash. What follows "--option=" is completed as what follows "--option ". The last line serves both a file that is sourced
// and one in a folder of $fpath, which is read when the first word is completed.
std::string ZshScript(const std::vector<CommandSpec>& commands) {
  std::string script = "#compdef lego\n_lego() {\n  local option= keys= jobs= files=1\n  local -a options commands=(\n";
  for (const CommandSpec& spec : commands) {
    absl::StrAppend(&script, "    ", Quoted(absl::StrCat(spec.name, ":", absl::StrReplaceAll(spec.summary, {{":", "\\:"}}))),
                    "\n");
  }
  script +=
      "  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
      "  if [[ $PREFIX == --*=* ]]; then option=${PREFIX%%=*}; compset -P 1 '*='; else option=${words[CURRENT-1]}; fi\n"
      "  case $option in\n";
  for (const auto& [option, values] : ValuesByOption(commands)) {
    absl::StrAppend(&script, "    --", option, option == "output" ? "|-o" : "", ") compadd", option == "cluster" ? " -S ''" : "",
                    " -- ", Words(values), option == "model" || option == "cluster" ? "; _files" : "", "; return ;;\n");
  }
  script += "  esac\n  case ${words[2]} in\n";
  for (const CommandSpec& spec : commands) {
    absl::StrAppend(&script, "    ", spec.name, ") options=(", Words(OptionWords(spec)), ")", spec.recipe_keys ? " keys=1" : "",
                    TakesJob(spec) ? " jobs=1" : "", TakesFiles(spec) ? "" : " files=");
    if (!Choices(spec).empty()) {
      absl::StrAppend(&script, "; [[ $PREFIX == -* ]] || { compadd -- ", Choices(spec), "; return }");
    }
    script += " ;;\n";
  }
  return absl::StrCat(script, "  esac\n  if [[ $PREFIX == -* ]]; then\n    compadd -- $options\n",
                      "    if [[ -n $keys ]]; then compadd -S '' -- ", Words(KeyWords(false)), "; fi\n    return\n  fi\n",
                      "  if [[ -n $jobs ]]; then compadd -- $(timeout 2 ${words[1]} ", kJobs, "); fi\n",
                      "  if [[ -n $files ]]; then _files; fi\n}\n",
                      "if [[ ${funcstack[1]} == _lego ]]; then _lego \"$@\"; else compdef _lego lego; fi\n");
}

std::string FishQuoted(const std::string& text) { return "'" + absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}) + "'"; }

std::string FishScript(const std::vector<CommandSpec>& commands) {
  std::string script;
  for (const CommandSpec& spec : commands) {
    absl::StrAppend(&script, "complete -c lego -n __fish_use_subcommand -f -a ", spec.name, " -d ", FishQuoted(spec.summary),
                    "\n");
    const std::string command = "complete -c lego -n '__fish_seen_subcommand_from " + spec.name + "'";
    for (const Option& option : spec.options) {
      const std::vector<std::string> values = ValuesOf(option);
      absl::StrAppend(&script, command, " -l ", option.name, option.value.empty() ? "" : " -r", " -d ", FishQuoted(option.help),
                      values.empty() ? "" : " -a " + FishQuoted(Words(values)), "\n");
    }
    if (spec.recipe_keys) absl::StrAppend(&script, command, " -a ", FishQuoted(Words(KeyWords(false))), "\n");
    if (!Choices(spec).empty()) absl::StrAppend(&script, command, " -f -a ", FishQuoted(Choices(spec)), "\n");
    if (TakesJob(spec)) {
      absl::StrAppend(&script, command, TakesFiles(spec) ? "" : " -f", " -a ",
                      FishQuoted(absl::StrCat("(timeout 2 (commandline -opc)[1] ", kJobs, ")")), "\n");
    }
  }
  return script + "complete -c lego -s o -l output -x -a 'table json yaml'\ncomplete -c lego -s h -l help\n";
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(const std::string& shell, const std::vector<CommandSpec>& commands) {
  if (shell == "bash") return BashScript(commands);
  if (shell == "zsh") return ZshScript(commands);
  if (shell == "fish") return FishScript(commands);
  return FieldError("SHELL", shell, "must be bash, zsh or fish");
}

Command CompletionCommand(std::vector<CommandSpec> commands) {
  CommandSpec spec;
  spec.name = "completion";
  spec.summary = "Prints a script that completes commands, options, models, clusters, recipe keys and jobs in a shell.";
  spec.positional = "bash|zsh|fish";
  spec.least_positional = spec.most_positional = 1;
  spec.details =
      "zsh, after compinit: source <(lego completion zsh), or keep the script as _lego in a folder of $fpath.\n"
      "fish: lego completion fish | source";
  spec.example = "source <(lego completion bash)";
  commands.push_back(spec);
  return {spec, [commands = std::move(commands)](const Arguments& arguments) -> absl::StatusOr<int> {
            ASSIGN_OR_RETURN(const auto script, CompletionScript(arguments.positional()[0], commands));
            const Tree tree = {{"shell", arguments.positional()[0]}, {"script", script}};
            Print(arguments.format() == Format::kTable ? script : TreeText(arguments.format(), tree));
            return kDone;
          }};
}

}  // namespace legoai::cli
