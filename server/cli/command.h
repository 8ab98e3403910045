// The commands of `lego`, in the files *_command.cc and *_commands.cc, and what their exit codes mean.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/cli/arguments.h"

namespace legoai::cli {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongCall = 2;
inline constexpr int kNothingFits = 3;
inline constexpr int kInterrupted = 130;

struct Command {
  CommandSpec spec;
  // Returns the exit code. An error is printed on standard error; its exit code is kWrongCall if it carries a FieldViolation and
  // is InvalidArgument or NotFound (a mistake of the user), kInterrupted if Cancelled, kFailed otherwise.
  std::function<absl::StatusOr<int>(const Arguments&)> run;
};

// Jobs of a server.
Command SubmitCommand();
Command ListCommand();
Command GetCommand();
Command WatchCommand();  // until a job ends; `wait` does so silently
Command WaitCommand();
Command LogsCommand();
Command TracesCommand();  // of steps, measured and predicted
Command CancelCommand();
Command RetryCommand();
Command WorkersCommand();  // the machines that train
Command ServersCommand();  // which of several servers leads
Command TokenCommand();    // who may call it
Command AuditCommand();    // who did

// Predictions, which need no device.
Command PlanCommand();
Command SimulateCommand();
Command CompareCommand();
Command CompareTraceCommand();  // of a step, predicted and measured
Command SweepCommand();
Command ScheduleCommand();  // of a pipeline
Command SacCommand();       // what to recompute

// This machine, without a server.
Command TrainCommand();
Command GenerateCommand();     // text, with a model that was trained
Command CheckpointsCommand();  // what a run can resume from
Command FlightCommand();       // `lego fr`: what every rank was doing, from the flight recorders of a run
Command UpCommand();           // server and agent in the background

Command ModelsCommand();     // known by name
Command HardwareCommand();   // the catalog; --measure measures this machine's CPU
Command CalibrateCommand();  // turns a card's measurements into a device file

// Shell completion of commands, options and their values, recipe keys and jobs, generated from `commands` (all others), the
// catalogs and the recipe's schema. Job names are requested from the server when needed.
Command CompletionCommand(std::vector<CommandSpec> commands);
// `shell`: bash, zsh or fish. Errors: FieldError for any other.
absl::StatusOr<std::string> CompletionScript(const std::string& shell, const std::vector<CommandSpec>& commands);

}  // namespace legoai::cli
