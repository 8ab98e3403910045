#include "server/cli/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "proto/errors.h"
#include "server/cli/arguments.h"
#include "server/cli/output.h"

namespace legoai::cli {
namespace {

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

// Bash: after the command its options where a word begins with a dash, files otherwise.
std::string BashScript(const std::vector<CommandSpec>& commands) {
  std::string script = absl::StrCat(
      "_lego() {\n  local word=${COMP_WORDS[COMP_CWORD]} options=\n",
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"", absl::StrJoin(Names(commands), " "),
      " help\" -- \"$word\")); return; fi\n",
      "  if [ \"${COMP_WORDS[COMP_CWORD-1]}\" = --output ] || [ \"${COMP_WORDS[COMP_CWORD-1]}\" = -o ]; then\n",
      "    COMPREPLY=($(compgen -W \"table json yaml\" -- \"$word\")); return\n  fi\n", "  case ${COMP_WORDS[1]} in\n");
  for (const CommandSpec& spec : commands) {
    absl::StrAppend(&script, "    ", spec.name, ") options=\"", absl::StrJoin(OptionWords(spec), " "), "\" ;;\n");
  }
  return script +
         "  esac\n  if [ \"${word#-}\" != \"$word\" ]; then COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
         "  else COMPREPLY=($(compgen -f -- \"$word\")); fi\n}\ncomplete -o filenames -F _lego lego ./lego\n";
}

std::string Quoted(const std::string& text) { return "'" + absl::StrReplaceAll(text, {{"'", "'\\''"}}) + "'"; }

std::string ZshScript(const std::vector<CommandSpec>& commands) {
  std::string script = "#compdef lego\n_lego() {\n  local -a commands=(\n";
  for (const CommandSpec& spec : commands) {
    absl::StrAppend(&script, "    ", Quoted(absl::StrCat(spec.name, ":", absl::StrReplaceAll(spec.summary, {{":", ","}}))), "\n");
  }
  script += "  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n  case ${words[2]} in\n";
  for (const CommandSpec& spec : commands) {
    absl::StrAppend(&script, "    ", spec.name, ") compadd -- ", absl::StrJoin(OptionWords(spec), " "), " ;;\n");
  }
  return script + "  esac\n  _files\n}\ncompdef _lego lego ./lego\n";
}

std::string FishQuoted(const std::string& text) { return "'" + absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}) + "'"; }

std::string FishScript(const std::vector<CommandSpec>& commands) {
  std::string script;
  for (const CommandSpec& spec : commands) {
    absl::StrAppend(&script, "complete -c lego -n __fish_use_subcommand -f -a ", spec.name, " -d ", FishQuoted(spec.summary),
                    "\n");
    const std::string condition = "-n '__fish_seen_subcommand_from " + spec.name + "'";
    for (const Option& option : spec.options) {
      absl::StrAppend(&script, "complete -c lego ", condition, " -l ", option.name, option.value.empty() ? "" : " -r", " -d ",
                      FishQuoted(option.help), "\n");
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
  spec.summary = "Prints a script that completes commands and options in a shell.";
  spec.positional = "bash|zsh|fish";
  spec.least_positional = spec.most_positional = 1;
  spec.example = "source <(lego completion bash)";
  commands.push_back(spec);
  return {spec, [commands = std::move(commands)](const Arguments& arguments) -> absl::StatusOr<int> {
            const auto script = CompletionScript(arguments.positional()[0], commands);
            if (!script.ok()) return script.status();
            Print(*script);
            return kDone;
          }};
}

}  // namespace legoai::cli
