// legoai-agent: trains on this machine what the server at --server gives it to train. Runs until SIGTERM or Ctrl-C: then trainers
// save and stop; the second one kills them. Log lines go to stderr as JSON. Exit codes: 0 asked to end, 1 refused by the server
// or a start that cannot be, 2 the call was wrong.
#include <grpcpp/support/channel_arguments.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "core/hardware/host.h"
#include "core/process/build_version.h"
#include "core/process/checkpoint_roots.h"
#include "core/process/child_process.h"
#include "core/process/data_roots.h"
#include "core/process/other_user.h"
#include "core/process/secret_file.h"
#include "proto/channel.h"
#include "proto/errors.h"
#include "proto/server_list.h"
#include "proto/status.h"
#include "worker/agent/agent.h"
#include "worker/agent/attempt_log.h"
#include "worker/agent/options.h"
#include "worker/agent/this_machine.h"
#include "worker/launch/gang_address.h"
#include "worker/launch/gpus.h"

ABSL_FLAG(std::string, server, "127.0.0.1:7420", "the server's address; of several servers over one store all, with commas");
ABSL_FLAG(std::string, token_file, "",
          "holds this agent's token (`lego token create --role agent`), if the server asks for one; read at every connection");
ABSL_FLAG(std::string, tls_ca, "", "PEM file of the certificates by which the server is known; turns TLS on");
ABSL_FLAG(std::string, tls_cert, "", "PEM file of this agent's certificate, for a server with --tls_client_ca");
ABSL_FLAG(std::string, tls_key, "", "PEM file of its key");
ABSL_FLAG(bool, insecure, false, "send the token in clear to a server on another machine, too");
ABSL_FLAG(std::string, name, "", "of this worker, unique in the fleet; this host's name if it is not given");
ABSL_FLAG(std::string, pool, "default", "of workers that jobs choose from");
ABSL_FLAG(std::optional<int64_t>, slots, std::nullopt,
          "ranks that may run here at a time; one for each GPU, or physical core, if not given");
ABSL_FLAG(
    std::string, device, "auto",
    "what the ranks run on: cpu; cuda, each on a GPU of its own (CUDA_VISIBLE_DEVICES says which may be used); auto: cuda where "
    "there is a GPU, else cpu");
ABSL_FLAG(std::string, runs, "", "folder for what jobs write; all workers of a pool must see the same one");
ABSL_FLAG(std::vector<std::string>, data_roots, {},
          "folders from which jobs may read texts, tokenizers and weights, with commas between them; the working folder (unless "
          "that is /) and the examples of this program if not given");
ABSL_FLAG(std::vector<std::string>, checkpoint_roots, {},
          "where jobs may keep checkpoints, with commas between: folders (that of --runs for jobs without a checkpoint.folder), "
          "s3://BUCKET and s3://BUCKET/PREFIX; in --runs and wherever this agent's keys may write if not given");
ABSL_FLAG(
    std::string, device_file, "",
    "a slot's device: this machine as `lego hardware --measure` found it, or a GPU that the catalog does not know; where the "
    "former keeps it, or the catalog's, if not given");
ABSL_FLAG(std::string, gang_address, "",
          "by which other workers' hosts reach this one, to train jobs together; that of --interface, or else the one by which "
          "this host reaches the server, if not given");
ABSL_FLAG(std::string, interface, "",
          "the network interface by which ranks reach those of other hosts; whichever leads there, if not given");
ABSL_FLAG(std::string, gang_ports, "29500-29755",
          "ports of this host at which workers that train together may meet, the first and the last; those of agents on one host "
          "should differ; empty: this one trains alone");
ABSL_FLAG(bool, check, true,
          "checks the machine before its first lease: the disk of --runs, each slot's device, and what connects them; what fails "
          "gets nothing (`lego workers NAME` says why)");
ABSL_FLAG(absl::Duration, check_limit, absl::Minutes(2),
          "time for disk and devices of a check, and once more for what connects them");
ABSL_FLAG(absl::Duration, check_again, absl::Minutes(5), "between checks as long as the disk of --runs fails them");
ABSL_FLAG(absl::Duration, gang_folder_wait, absl::Seconds(90),
          "how long an attempt over several workers waits here for the first one to be seen in --runs");
ABSL_FLAG(std::vector<std::string>, labels, {},
          "NAME=VALUE with commas between them; rack and nvlink-domain say which workers are near each other");
ABSL_FLAG(std::string, trainer, "", "program of the ranks; legoai-trainer beside this program if not given");
ABSL_FLAG(std::string, trainer_user, "",
          "the user as whom it runs: one without rights, to whom this agent's token, keys and other files are closed; the "
          "agent's own if not given. Needs root, or CAP_SETUID and CAP_SETGID");
ABSL_FLAG(int64_t, trainer_memory_mb, 0,
          "megabytes of the host's memory that each rank may take for itself (RLIMIT_DATA), so that one which wants more fails "
          "and the kernel does not choose whom to kill; 0: no limit of its own");
ABSL_FLAG(int64_t, telemetry_mb, 64,
          "megabytes of metrics, log lines and traces of steps that are kept while the server is away");
ABSL_FLAG(absl::Duration, stop_grace, absl::Seconds(60), "time for trainers to save and stop when the agent is asked to end");

namespace legoai::agent {
namespace {

absl::Status ReadLabels(v1::Worker* worker) {
  constexpr size_t kLongest = 255;
  for (const std::string& label : absl::GetFlag(FLAGS_labels)) {
    const size_t equals = label.find('=');
    if (equals == 0 || equals == std::string::npos || label.size() > kLongest)
      return FieldError("--labels", label, "must be NAME=VALUE, of at most 255 characters");
    (*worker->mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
  }
  return absl::OkStatus();
}

// The address by which this host reaches the server, by which others are likely to reach it.
absl::StatusOr<std::string> AddressTowards(const std::string& server) {
  const size_t colon = server.rfind(':');
  std::string host = server.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  int64_t port = 0;
  if (!absl::SimpleAtoi(server.substr(colon + 1), &port)) return FieldError("--server", server, "must be HOST:PORT");
  return launch::ListenAddress(host, port);
}

// Towards the first of them that can be found.
absl::StatusOr<std::string> AddressTowardsAny(const std::vector<std::string>& servers) {
  absl::StatusOr<std::string> address = absl::NotFoundError("there is no server");
  for (const std::string& server : servers) {
    address = AddressTowards(server);
    if (address.ok()) break;
  }
  return address;
}

// As a number: each host reads a name for itself, and this one's own may stand for something else there.
absl::StatusOr<std::string> CheckGangAddress(const std::string& given) {
  std::string address;
  const auto listener = launch::ListenOn(given, 0, &address);
  if (listener.ok()) close(listener->fd);
  if (listener.ok() && address != "0.0.0.0" && address != "::") return address;
  return FieldError("--gang_address", given,
                    "must be an address of this host, or a name of it, by which other hosts reach it too, and not one that "
                    "stands for this host here alone, as in /etc/hosts");
}

// Without an address it trains alone.
absl::Status ReadGangPorts(const std::vector<std::string>& servers, AgentOptions* options) {
  const std::string ports = absl::GetFlag(FLAGS_gang_ports), interface = absl::GetFlag(FLAGS_interface);
  if (!interface.empty()) {
    RETURN_IF_ERROR(launch::UseInterface(interface));
  }
  if (ports.empty()) return absl::OkStatus();
  const std::vector<std::string> ends = absl::StrSplit(ports, '-');
  int64_t first = 0, last = 0;
  const bool read = absl::SimpleAtoi(ends.front(), &first) && absl::SimpleAtoi(ends.back(), &last);
  if (!read || ends.size() > 2 || first < 1 || last < first || last > 65535)
    return FieldError("--gang_ports", ports, "must be a port from 1 to 65535, or FIRST-LAST");
  options->worker.set_first_gang_port(first);
  options->worker.set_gang_ports(last - first + 1);
  const std::string given = absl::GetFlag(FLAGS_gang_address);
  if (!given.empty()) {
    ASSIGN_OR_RETURN(*options->worker.mutable_gang_address(), CheckGangAddress(given));
    return absl::OkStatus();
  }
  const auto found = interface.empty() ? AddressTowardsAny(servers) : launch::AddressOfInterface(interface);
  if (found.ok()) {
    options->worker.set_gang_address(*found);
    return absl::OkStatus();
  }
  options->alone_reason = absl::StrCat("no address by which others reach it: ", found.status().message());
  // Names of servers may be known later, as after a boot.
  options->find_gang_address = [servers] { return AddressTowardsAny(servers); };
  return absl::OkStatus();
}

// What is wrong with it now would be so at every try.
absl::Status CheckSecurity(const AgentOptions& options, const ServerList& servers) {
  ChannelSecurity security = options.security;
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(security.token, launch::ReadSecretFile("--token_file", options.token_file));
  }
  for (const std::string& server : servers.all())
    RETURN_IF_ERROR(MakeChannel(server, security, grpc::ChannelArguments()).status());
  return absl::OkStatus();
}

absl::StatusOr<AgentOptions> ReadOptions() {
  AgentOptions options;
  options.server = absl::GetFlag(FLAGS_server);
  options.token_file = absl::GetFlag(FLAGS_token_file);
  options.security = {.ca = absl::GetFlag(FLAGS_tls_ca),
                      .certificate = absl::GetFlag(FLAGS_tls_cert),
                      .key = absl::GetFlag(FLAGS_tls_key),
                      .insecure = absl::GetFlag(FLAGS_insecure),
                      .ca_option = "--tls_ca",
                      .certificate_option = "--tls_cert",
                      .key_option = "--tls_key"};
  ASSIGN_OR_RETURN(const auto servers, ServerList::Parse("--server", options.server));
  RETURN_IF_ERROR(CheckSecurity(options, servers));
  options.stop_grace = absl::GetFlag(FLAGS_stop_grace);
  if (options.stop_grace < absl::ZeroDuration() || options.stop_grace > absl::Hours(24))
    return FieldError("--stop_grace", absl::FormatDuration(options.stop_grace), "must be 0 to 24h");
  options.gang_folder_wait = absl::GetFlag(FLAGS_gang_folder_wait);
  if (options.gang_folder_wait < absl::Seconds(1) || options.gang_folder_wait > absl::Hours(24))
    return FieldError("--gang_folder_wait", absl::FormatDuration(options.gang_folder_wait), "must be 1s to 24h");
  options.check = absl::GetFlag(FLAGS_check);
  options.check_limit = absl::GetFlag(FLAGS_check_limit);
  if (options.check_limit < absl::Seconds(1) || options.check_limit > absl::Hours(1))
    return FieldError("--check_limit", absl::FormatDuration(options.check_limit), "must be 1s to 1h");
  options.check_again = absl::GetFlag(FLAGS_check_again);
  if (options.check_again < absl::Seconds(1) || options.check_again > absl::Hours(24))
    return FieldError("--check_again", absl::FormatDuration(options.check_again), "must be 1s to 24h");
  const int64_t memory = absl::GetFlag(FLAGS_trainer_memory_mb);
  if (memory != 0 && (memory < 512 || memory > 100'000'000))
    return FieldError("--trainer_memory_mb", absl::StrCat(memory), "must be 512 to 100000000, or 0: no limit");
  options.trainer_memory_bytes = memory * 1'000'000;
  const int64_t megabytes = absl::GetFlag(FLAGS_telemetry_mb);
  if (megabytes < 1 || megabytes > 100'000) return FieldError("--telemetry_mb", absl::StrCat(megabytes), "must be 1 to 100000");
  options.telemetry_bytes = megabytes * 1'000'000;
  if (absl::GetFlag(FLAGS_runs).empty()) return FieldError("--runs", "", "is needed: a folder for what jobs write");
  std::error_code error;
  // A slash at its end would be doubled in the paths below it.
  options.runs = (std::filesystem::absolute(absl::GetFlag(FLAGS_runs), error) / "").lexically_normal().parent_path().string();
  std::filesystem::create_directories(options.runs, error);
  // Where it is the trainers', this agent need not write in it.
  if (error || (absl::GetFlag(FLAGS_trainer_user).empty() && access(options.runs.c_str(), W_OK) != 0)) {
    return FieldError("--runs", options.runs, absl::StrCat("cannot be written", error ? ": " + error.message() : ""));
  }
  options.data_roots = absl::GetFlag(FLAGS_data_roots);
  if (options.data_roots.empty()) options.data_roots = launch::DefaultDataRoots();
  for (std::string& root : options.data_roots) {
    if (!root.empty()) root = std::filesystem::absolute(root, error).lexically_normal().string();
    if (root.empty() || (std::filesystem::exists(root, error) && !std::filesystem::is_directory(root, error)))
      return FieldError("--data_roots", root, "must be a folder");
  }
  ASSIGN_OR_RETURN(options.checkpoint_roots, launch::ParseCheckpointRoots(absl::GetFlag(FLAGS_checkpoint_roots)));
  auto worker = ThisMachine({.name = absl::GetFlag(FLAGS_name),
                             .pool = absl::GetFlag(FLAGS_pool),
                             .slots = absl::GetFlag(FLAGS_slots),
                             .device = absl::GetFlag(FLAGS_device),
                             .device_file = absl::GetFlag(FLAGS_device_file)});
  if (!worker.ok()) return worker.status();
  options.worker = std::move(worker->worker);
  RETURN_IF_ERROR(ReadLabels(&options.worker));
  RETURN_IF_ERROR(ReadGangPorts(servers.all(), &options));
  (*options.worker.mutable_labels())[launch::kDataRootsLabel] = absl::StrJoin(options.data_roots, ",");
  options.device_reason = std::move(worker->device_reason);
  options.trainer = absl::GetFlag(FLAGS_trainer);
  if (!options.trainer.empty()) return options;
  ASSIGN_OR_RETURN(options.trainer, launch::FindTrainer());
  return options;
}

// Whether the calling thread may.
bool May(const std::string& path, int what) { return faccessat(AT_FDCWD, path.c_str(), what, AT_EACCESS) == 0; }

// What trainers need is open to their user, and what is this agent's is not.
absl::Status CheckAccess(const AgentOptions& options, const launch::OtherUser& user) {
  const absl::StatusCode denied = absl::StatusCode::kPermissionDenied;
  const std::string name = absl::StrCat("user ", user.name, " (--trainer_user)");
  if (!May(options.trainer, X_OK))
    return FieldError("--trainer", options.trainer,
                      absl::StrCat("cannot be run by ", name, ": open it, and the folders above it"), denied);
  if (!May(options.runs, X_OK))
    return FieldError("--runs", options.runs, absl::StrCat("is closed to ", name, ": open it, and the folders above it"),
                      denied);
  if (access(options.runs.c_str(), W_OK) != 0 && !May(options.runs, W_OK))  // access() asks for this agent
    return FieldError("--runs", options.runs, absl::StrCat("can be written neither by this agent nor by ", name), denied);
  const std::pair<const char*, std::string> secrets[] = {{"--token_file", options.token_file},
                                                         {"--tls_key", options.security.key}};
  for (const auto& [field, path] : secrets) {
    if (!path.empty() && May(path, R_OK))
      return FieldError(field, path, absl::StrCat("may be read by ", name, ": make it this agent's alone (chmod 600, chown)"),
                        denied);
  }
  return absl::OkStatus();
}

absl::StatusOr<AgentOptions> WithTrainerUser(AgentOptions options) {
  const std::string name = absl::GetFlag(FLAGS_trainer_user);
  if (name.empty()) return options;
  ASSIGN_OR_RETURN(options.trainer_user, launch::FindOtherUser("--trainer_user", name));
  absl::Status checked;
  RETURN_IF_ERROR(launch::RunAs(*options.trainer_user, [&] { checked = CheckAccess(options, *options.trainer_user); }));
  RETURN_IF_ERROR(checked);
  return options;
}

std::string TrainersRunAs(const AgentOptions& options) {
  if (options.trainer_user) return absl::StrCat("user ", options.trainer_user->name, " (", options.trainer_user->uid, ")");
  return geteuid() == 0 ? "root, as this agent (--trainer_user)" : "this agent's user";
}

// Signals are taken by one thread: no handler runs in the middle of anything.
void PassOnSignals(Agent& agent, const sigset_t& signals) {
  std::thread([&agent, signals] {
    int number = 0;
    while (sigwait(&signals, &number) == 0) agent.Stop();
  }).detach();
}

int Fail(const JsonLog& log, const absl::Status& status, int code) {
  log.Write("error", std::string(status.message()));
  return code;
}

int Main(int argc, char** argv) {
  setenv("GRPC_ENABLE_FORK_SUPPORT", "0", 1);  // between fork and exec trainers need nothing of gRPC
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error with a remedy (ulimit -f), not the end
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // in all threads to come
  launch::SetProgramHelp(
      "trains on this machine what a LegoAI server gives it.\n"
      "Example: legoai-agent --server=127.0.0.1:7420 --runs=/shared/legoai/runs",
      "worker/agent/main.cc");
  const JsonLog log(STDERR_FILENO);
  if (absl::Status status = CheckArguments({argv + 1, argv + argc}); !status.ok()) return Fail(log, status, 2);
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  if (words.size() > 1) return Fail(log, FieldError("argument", words[1], "is none: options begin with --"), 2);
  auto options = ReadOptions();
  if (options.ok()) options = WithTrainerUser(*std::move(options));
  const bool is_wrong_call = GetFieldViolation(options.status()) && !absl::IsUnavailable(options.status());
  if (!options.ok()) return Fail(log, options.status(), is_wrong_call ? 2 : 1);
  std::vector<std::string> gpus;
  for (const v1::SlotDevice& device : options->worker.slot_devices()) gpus.push_back(device.uuid());
  const auto claim = launch::GpuClaim::Take(gpus);
  if (!claim.ok()) return Fail(log, claim.status(), 1);
  log.Write("info",
            absl::StrCat("legoai-agent ", options->worker.build_version(), " of ", options->worker.name(), ": ",
                         options->worker.slots(), " slots of type ", options->worker.device().type(), " (",
                         options->device_reason, "), runs in ", options->runs, "; jobs may read from ",
                         options->data_roots.empty() ? "nowhere (--data_roots)" : absl::StrJoin(options->data_roots, ", "),
                         options->checkpoint_roots.empty() ? "" : ", and keep checkpoints in ",
                         absl::StrJoin(options->checkpoint_roots, ", "), "; trainers run as ", TrainersRunAs(*options)));
  if (options->worker.device().kind() == v1::CPU && absl::GetFlag(FLAGS_device_file).empty() && !HasBeenMeasured()) {
    log.Write("warning", "this machine has not been measured, the catalog's cpu stands for it: run `lego hardware --measure`");
  }
  if (!options->alone_reason.empty())
    log.Write("warning", absl::StrCat("trains no job together with other workers as long as there is ", options->alone_reason,
                                      ": it is looked for at each connection, or give --gang_address"));
  if (const std::string busy = sim::MeasuredBusyText(options->worker.device()); !busy.empty()) log.Write("warning", busy);
  // Never destroyed: the signals' thread may speak with it until the process has ended.
  static Agent& agent = *new Agent(*std::move(options), log);
  PassOnSignals(agent, signals);
  const absl::Status status = agent.Run();
  if (status.ok()) log.Write("info", "has ended");
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace legoai::agent

int main(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", 0);  // the library's own lines are no JSON; what goes wrong is in the status
  return legoai::agent::Main(argc, argv);
}
