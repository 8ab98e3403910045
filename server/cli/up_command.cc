#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/hardware/host.h"
#include "core/process/child_process.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/interrupt.h"
#include "server/cli/local_service.h"
#include "server/cli/machine.h"
#include "server/cli/output.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kDefaultPage[] = "127.0.0.1:7421";

std::string Absolute(const std::string& path) {
  std::error_code error;
  return (fs::absolute(path, error) / "").lexically_normal().parent_path().string();
}

absl::StatusOr<std::string> Folder(const Arguments& arguments) {
  if (arguments.Has("data") && !arguments.Text("data").empty()) return Absolute(arguments.Text("data"));
  return LocalService::DefaultFolder();
}

// What else is wrong with it the server says.
absl::StatusOr<std::string> Address(const Arguments& arguments, const std::string& option, const std::string& otherwise) {
  const std::string address = arguments.Text(option, otherwise);
  if (!absl::EndsWith(address, ":0")) return address;
  return FieldError("--" + option, address, "must be an address and a port that others can be told of, as in 127.0.0.1:7420");
}

absl::StatusOr<std::vector<std::string>> ServerCommand(const Arguments& arguments, const std::string& folder) {
  const auto program = launch::FindProgram("legoai-server", "server/main", "LEGOAI_SERVER_PROGRAM"), sim = FindSim();
  const auto listen = Address(arguments, "listen", kDefaultServer), http = Address(arguments, "http", kDefaultPage);
  for (const auto* one : {&program, &sim, &listen, &http}) {
    if (!one->ok()) return one->status();
  }
  std::vector<std::string> command = {*program, "--data=" + folder, "--listen=" + *listen, "--http=" + *http, "--sim=" + *sim};
  if (arguments.Has("web")) command.push_back("--web=" + Absolute(arguments.Text("web")));
  if (arguments.Has("insecure")) command.push_back("--insecure");
  return command;
}

absl::StatusOr<std::vector<std::string>> AgentCommand(const Arguments& arguments, const std::string& folder) {
  ASSIGN_OR_RETURN(const auto program, launch::FindProgram("legoai-agent", "worker/agent", "LEGOAI_AGENT_PROGRAM"));
  ASSIGN_OR_RETURN(const auto trainer, FindTrainer());
  ASSIGN_OR_RETURN(const auto slots, arguments.Integer("slots", 1));
  std::vector<std::string> command = {program, "--server=" + arguments.Text("listen", kDefaultServer),
                                      "--runs=" + Absolute(arguments.Text("runs", folder + "/runs")), "--trainer=" + trainer};
  for (const char* option : {"name", "device"}) {
    if (arguments.Has(option)) command.push_back(absl::StrCat("--", option, "=", arguments.Text(option)));
  }
  if (slots) command.push_back(absl::StrCat("--slots=", *slots));
  std::vector<std::string> roots = arguments.All("data-root");
  for (std::string& root : roots) root = Absolute(root);
  if (!roots.empty()) command.push_back("--data_roots=" + absl::StrJoin(roots, ","));
  return command;
}

// From which jobs may read: what the agent was told, or its working folder.
std::string DataRoots(const BackgroundProgram& agent) {
  const std::string told = agent.ValueOf("--data_roots");
  const auto running = agent.Running();
  std::error_code gone;
  if (!told.empty() || !running) return told;
  return fs::read_symlink(absl::StrCat("/proc/", running->pid, "/cwd"), gone).string();
}

Tree TreeOf(const BackgroundProgram& program) {
  const auto running = program.Running();
  return {{"pid", running ? Tree(running->pid) : Tree(nullptr)}, {"log", program.log()}};
}

Tree TreeOf(const LocalService& service) {
  const std::string http = service.server().ValueOf("--http");
  return {{"running", service.BothRun()},
          {"page", http.empty() ? Tree(nullptr) : Tree("http://" + http + "/")},
          {"address", service.server().ValueOf("--listen")},
          {"server", TreeOf(service.server())},
          {"agent", TreeOf(service.agent())},
          {"data", service.folder()},
          {"runs", service.agent().ValueOf("--runs")},
          {"data_roots", DataRoots(service.agent())}};
}

std::string Line(const std::string& name, const std::string& text) {
  return text.empty() ? "" : absl::StrCat(name, std::string(8 - name.size(), ' '), text, "\n");
}

std::string StateOf(const BackgroundProgram& program, const std::string& address) {
  const auto running = program.Running();
  return running ? absl::StrCat("process ", running->pid, address.empty() ? "" : ", " + address, "; its log is ", program.log())
                 : "does not run";
}

std::string TextOf(const LocalService& service) {
  const std::string http = service.server().ValueOf("--http");
  return absl::StrCat(Line("page", http.empty() ? "" : "http://" + http + "/"),
                      Line("server", StateOf(service.server(), service.server().ValueOf("--listen"))),
                      Line("agent", StateOf(service.agent(), "")), Line("store", service.folder()),
                      Line("runs", service.agent().ValueOf("--runs")), Line("reads", DataRoots(service.agent())));
}

void Show(const Arguments& arguments, const LocalService& service, const std::string& text) {
  Print(arguments.format() == Format::kTable ? text : TreeText(arguments.format(), TreeOf(service)));
}

absl::StatusOr<int> ShowStatus(const Arguments& arguments, const LocalService& service) {
  Show(arguments, service,
       service.AnyRuns() ? TextOf(service) : absl::StrCat("nothing runs; the data is in ", service.folder(), "\n"));
  return service.BothRun() ? kDone : kFailed;
}

absl::StatusOr<int> Stop(const Arguments& arguments, LocalService& service) {
  std::error_code none;
  const bool is_there = fs::exists(service.folder(), none);
  ASSIGN_OR_RETURN(const auto lock, is_there ? service.Lock() : std::shared_ptr<void>());
  const bool any = service.AnyRuns();
  if (any) service.Stop();
  Show(arguments, service, absl::StrCat(any ? "stopped" : "nothing runs", "; the data is in ", service.folder(), "\n"));
  return kDone;
}

// Plans for this machine go by what was measured here. What was measured while others were busy is measured anew once they are
// not, and no agent runs: its trainers would be among the others. That it cannot be measured keeps no service from starting.
absl::Status MeasureWhereNeeded(const LocalService& service) {
  const std::string path = HostDevicePath();
  std::error_code none;
  const bool is_there = fs::exists(path, none);
  ASSIGN_OR_RETURN(const auto host, is_there ? LoadHostDevice() : std::optional<v1::Device>());
  if (host && !sim::WasMeasuredBusy(*host)) return absl::OkStatus();
  if (host && (service.agent().Running() || !sim::HostIsQuiet())) {
    WarnIfMeasuredBusy(*host);
    return absl::OkStatus();
  }
  const absl::Status measured = MeasureHost("LEGOAI_HOST_DEVICE", path).status();
  if (measured.ok()) return absl::OkStatus();
  std::fprintf(stderr, "warning: this machine could not be measured%s: %s\n",
               host ? " again" : ", and plans for it go by the catalog's cpu", std::string(measured.message()).c_str());
  if (host) WarnIfMeasuredBusy(*host);
  return absl::OkStatus();
}

std::string Hints(const Arguments& arguments, const LocalService& service) {
  const std::string listen = service.server().ValueOf("--listen");
  return absl::StrCat(
      listen == kDefaultServer ? "" : absl::StrCat("other commands find it with `export LEGOAI_SERVER=", listen, "`\n"),
      "`lego up --stop", arguments.Has("data") ? absl::StrCat(" --data ", arguments.Text("data")) : "", "` ends it\n");
}

// For containers, whose first process must not end.
absl::StatusOr<int> Stay(const InterruptGuard& guard, LocalService& service) {
  while (!guard.interrupted() && service.BothRun()) absl::SleepFor(absl::Milliseconds(100));
  if (guard.interrupted()) {
    service.Stop();
    return kDone;
  }
  return LocalService::Ended(service.server().Running() ? service.agent() : service.server());
}

absl::StatusOr<int> Start(const Arguments& arguments, LocalService& service) {
  ASSIGN_OR_RETURN(const auto server, ServerCommand(arguments, service.folder()));
  ASSIGN_OR_RETURN(const auto agent, AgentCommand(arguments, service.folder()));
  // Before anything starts: the first process of a container has no default action for signals.
  std::optional<InterruptGuard> guard;
  if (arguments.Has("foreground")) guard.emplace();
  {
    ASSIGN_OR_RETURN(const auto lock, service.Lock());
    RETURN_IF_ERROR(MeasureWhereNeeded(service));
    RETURN_IF_ERROR(service.Start(server, agent));
  }
  if (!guard) {
    Show(arguments, service, TextOf(service) + Hints(arguments, service));
    return kDone;
  }
  Show(arguments, service, TextOf(service));
  std::fflush(stdout);
  return Stay(*guard, service);
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  if (arguments.Has("stop") && arguments.Has("status")) return FieldError("--stop", "", "and --status exclude each other");
  ASSIGN_OR_RETURN(const auto folder, Folder(arguments));
  LocalService service(folder);
  if (arguments.Has("status")) return ShowStatus(arguments, service);
  return arguments.Has("stop") ? Stop(arguments, service) : Start(arguments, service);
}

}  // namespace

Command UpCommand() {
  CommandSpec spec;
  spec.name = "up";
  spec.summary = "Starts server and agent on this machine, in the background, and says where the page is.";
  spec.options = {{"stop", "", "ends both; what trains is saved before, and goes on with the next `lego up`"},
                  {"status", "", "says what runs; the exit code is 1 unless both run"},
                  {"data", "DIR", "for store, logs and runs (legoai in $XDG_DATA_HOME, or ~/.local/share/legoai)"},
                  {"runs", "DIR", "for what jobs write: checkpoints, metrics, models (runs in --data)"},
                  {"data-root", "DIR", "from which jobs may read; the working folder, where none is given", true},
                  {"listen", "ADDRESS:PORT", "of the server, for commands (127.0.0.1:7420)"},
                  {"http", "ADDRESS:PORT", "of the page (127.0.0.1:7421)"},
                  {"insecure", "", "lets other machines reach these; whoever does can do everything"},
                  {"web", "DIR", "of the built page; the one that was installed if not given"},
                  {"name", "NAME", "of the agent; this host's if not given"},
                  {"device", "auto|cpu|cuda", "what jobs train on; auto: cuda where there is a GPU"},
                  {"slots", "N", "ranks at a time; one for each GPU, or physical core, if not given"},
                  {"foreground", "", "stays until Ctrl-C or SIGTERM, then ends both: for containers"}};
  spec.details =
      "Measures this machine first, if that was not done, and again where others were busy meanwhile and are not now,\n"
      "before an agent starts. Can be repeated: what runs with these options is left alone, what runs with others, or is\n"
      "of another build, is ended and started anew.";
  spec.example = "lego up";
  return {spec, Run};
}

}  // namespace legoai::cli
