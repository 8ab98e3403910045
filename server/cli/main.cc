// `lego`: the command line.
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/process/build_version.h"
#include "proto/errors.h"
#include "proto/text.h"
#include "server/cli/command.h"
#include "server/cli/output.h"

namespace legoai::cli {
namespace {

absl::StatusOr<int> PrintVersion(const Arguments& arguments) {
  const std::string version(launch::BuildVersion());
  Print(arguments.format() == Format::kTable ? "lego " + version + "\n" : TreeText(arguments.format(), {{"version", version}}));
  return kDone;
}

std::vector<Command> AllCommands() {
  CommandSpec version;
  version.name = "version";
  version.summary = "Prints the release and a digest of the sources it was built from.";
  version.example = "lego version";
  std::vector<Command> commands = {
      SubmitCommand(), ListCommand(), GetCommand(), WatchCommand(), WaitCommand(), LogsCommand(), TracesCommand(),
      CancelCommand(), RetryCommand(), WorkersCommand(), ServersCommand(), PlanCommand(), SimulateCommand(), CompareCommand(),
      CompareTraceCommand(), SweepCommand(), ScheduleCommand(), SacCommand(), TrainCommand(), GenerateCommand(),
      CheckpointsCommand(), FlightCommand(), ModelsCommand(), HardwareCommand(), CalibrateCommand(), UpCommand(),
      TokenCommand(), AuditCommand(),
      {version, PrintVersion}};
  std::vector<CommandSpec> specs;
  for (const Command& command : commands) specs.push_back(command.spec);
  commands.push_back(CompletionCommand(std::move(specs)));
  return commands;
}

std::string Overview(const std::vector<Command>& commands) {
  std::string text = "lego finds the recipe that trains a model fastest on a cluster, and trains with it.\n\n";
  for (const Command& command : commands)
    absl::StrAppend(&text, absl::StrFormat("  %-14s %s\n", command.spec.name, command.spec.summary));
  return text +
         "\n`lego COMMAND --help` shows the options of a command, with an example. -o json or -o yaml, before or after the "
         "command,\n"
         "prints its result for programs; NO_COLOR=1 in the environment prints without colours.\n"
         "exit codes: 0 done, 1 failed, 2 the call was wrong, 3 nothing fits, 130 interrupted\n";
}

int CodeOf(const absl::Status& status) {
  if (absl::IsCancelled(status)) return kInterrupted;
  const bool wrong_input = absl::IsInvalidArgument(status) || absl::IsNotFound(status);
  return wrong_input && GetFieldViolation(status) ? kWrongCall : kFailed;
}

int Report(const std::string& name, const absl::Status& status, int code) {
  const std::string who = Colored(Color::kRed, absl::StrCat("lego ", name, ":"), Stream::kErr);
  std::fprintf(stderr, "%s %s\n", who.c_str(), Printable(std::string(status.message()), Lines::kKeep).c_str());
  return code;
}

// What a library throws ends here.
absl::StatusOr<int> Run(const Command& command, const Arguments& arguments) {
  try {
    return command.run(arguments);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("an unexpected error: ", error.what()));
  }
}

int RunCommand(const Command& command, const std::vector<std::string>& words) {
  const auto arguments = Arguments::Parse(command.spec, words);
  if (!arguments.ok()) return Report(command.spec.name, arguments.status(), kWrongCall);
  if (arguments->help()) {
    Print(HelpText(command.spec));
    return kDone;
  }
  const auto code = Run(command, *arguments);
  if (!code.ok()) return Report(command.spec.name, code.status(), CodeOf(code.status()));
  if (AllPrinted()) return *code;
  return Report(command.spec.name, absl::DataLossError("the result could not all be written to standard output"), kFailed);
}

int Main(std::vector<std::string> words) {
  if (absl::Status status = CheckArguments(words); !status.ok()) {
    std::fprintf(stderr, "lego: %s\n", std::string(status.message()).c_str());
    return kWrongCall;
  }
  const std::vector<Command> commands = AllCommands();
  words = CommandFirst(std::move(words));
  std::string name = words.empty() ? "--help" : words[0];
  if (!words.empty()) words.erase(words.begin());
  if (name == "--version") name = "version";
  const bool help = name == "help" || name == "--help" || name == "-h";
  if (help && words.empty()) {
    Print(Overview(commands));
    return kDone;
  }
  if (help) name = words[0], words = {"--help"};
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (command.spec.name == name) return RunCommand(command, words);
    names.push_back(command.spec.name);
  }
  std::fprintf(stderr, "lego %s: unknown command; did you mean `lego %s`? `lego --help` lists all\n", name.c_str(),
               Nearest(name, names).c_str());
  return kWrongCall;
}

}  // namespace
}  // namespace legoai::cli

int main(int argc, char** argv) {
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error with a remedy (ulimit -f), not the end
  return legoai::cli::Main({argv + 1, argv + argc});
}
