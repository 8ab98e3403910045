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
  // Returns the exit code. An error becomes one on standard error: kWrongCall if it carries a FieldViolation and is an
  // InvalidArgument or NotFound (something the user wrote, or named), kInterrupted if Cancelled, kFailed otherwise.
  std::function<absl::StatusOr<int>(const Arguments&)> run;
};

// Jobs of a server.
Command SubmitCommand();
Command ListCommand();
Command GetCommand();
Command WatchCommand();  // to the end of a job; so does `wait`, silently
Command WaitCommand();
Command LogsCommand();
Command TracesCommand();  // of steps, measured and predicted
Command CancelCommand();
Command RetryCommand();
Command WorkersCommand();  // the machines that train

// Predictions, which need no device.
Command PlanCommand();
Command SimulateCommand();
Command CompareCommand();
Command CompareTraceCommand();  // of a step, predicted and measured
Command SweepCommand();
Command ScheduleCommand();  // of a pipeline

// This machine, without a server.
Command TrainCommand();
Command GenerateCommand();     // text, with a model that was trained
Command CheckpointsCommand();  // what a run can resume from
Command FlightCommand();       // `lego fr`: what every rank was doing, from the flight recorders of a run
Command UpCommand();           // server and agent in the background

Command ModelsCommand();     // known by name
Command HardwareCommand();   // the catalog; --measure measures this machine's CPU
Command CalibrateCommand();  // from what a card measured to a device whose times rest on it

// Completion of commands, options and their values, recipe keys and jobs: written from `commands`, all others, the catalogs and
// the recipe's schema. The server is asked for jobs when they are needed.
Command CompletionCommand(std::vector<CommandSpec> commands);
// `shell`: bash, zsh or fish. Errors: FieldError for another one.
absl::StatusOr<std::string> CompletionScript(const std::string& shell, const std::vector<CommandSpec>& commands);

}  // namespace legoai::cli
