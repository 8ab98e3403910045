// legoai-server: the control plane as one process. Store, planner, scheduler, gRPC for users and agents, HTTP for the
// page.
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/process/build_version.h"
#include "core/process/host_resources.h"
#include "planner/lego_sim_pool.h"
#include "proto/channel.h"
#include "proto/errors.h"
#include "proto/rpc.h"
#include "proto/status.h"
#include "server/access/certificates.h"
#include "server/access/gate.h"
#include "server/access/tokens.h"
#include "server/fleet/controller.h"
#include "server/http/handlers.h"
#include "server/http/http_server.h"
#include "server/jobs/notifier.h"
#include "server/jobs/request_checks.h"
#include "server/jobs/stop.h"
#include "server/leader/election.h"
#include "server/leader/leader_client.h"
#include "server/main/listen_address.h"
#include "server/main/oidc_users.h"
#include "server/metrics/log.h"
#include "server/metrics/registry.h"
#include "server/metrics/store_metrics.h"
#include "server/rpc/control_plane.h"
#include "server/rpc/grpc_access_control.h"
#include "server/rpc/grpc_control_plane.h"
#include "server/rpc/grpc_worker_service.h"
#include "server/rpc/thread_pool.h"
#include "server/store/guarded_store.h"
#include "server/store/open_store.h"
#include "server/store/repair.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7420", "address and port of gRPC, for `lego` and for agents");
ABSL_FLAG(std::string, http, "127.0.0.1:7421", "address and port of HTTP, for the page, JSON and /metrics; empty: none");
ABSL_FLAG(std::vector<std::string>, http_host_names, {}, "names by which HTTP is reached besides localhost and --http's address");
ABSL_FLAG(bool, tokens, false,
          "ask every caller for a token (`lego token`); the first operator's is made when this server leads, into a file");
ABSL_FLAG(std::string, first_token_file, "",
          "for the first operator's token, made where no operator has one that counts; DATA/first_operator.token if not given");
ABSL_FLAG(std::string, audit_log, "",
          "file for what was done by whom, with --tokens; DATA/audit.jsonl if not given. Rotated at 64 MiB; 16 files are kept");
ABSL_FLAG(double, calls_per_second, 200, "that one token may make in the long run; 0: as many as its holder likes");
ABSL_FLAG(std::string, oidc_issuer, "",
          "with --tokens: the OpenID provider whose tokens are taken, too, exactly as their claim iss names it");
ABSL_FLAG(std::string, oidc_audience, "", "what this server is called there: their claim aud is, or contains, it");
ABSL_FLAG(std::string, oidc_jwks, "",
          "where the provider's keys are (a JWK Set): https://... , read every hour and when a key is not known, or a file");
ABSL_FLAG(std::string, oidc_tls_ca, "", "PEM file of the certificates by which that URL is known; the system's if not given");
ABSL_FLAG(std::string, oidc_roles, "", "TOML file that says what the provider's groups may do: [[grant]] group, role, project");
ABSL_FLAG(std::string, oidc_groups_claim, "groups", "the claim that has a user's groups: a list of texts, or one text");
ABSL_FLAG(std::string, oidc_name_claim, "sub", "the claim that users are shown by, such as email; sub where it is missing");
ABSL_FLAG(std::string, tls_cert, "",
          "PEM file of this server's certificate, with its chain: gRPC and HTTP speak TLS; read anew when it changes");
ABSL_FLAG(std::string, tls_key, "", "PEM file of its key");
ABSL_FLAG(std::string, peer_tls_ca, "",
          "PEM file of the certificates by which servers over one store know each other, with TLS; --tls_client_ca if not given");
ABSL_FLAG(std::string, tls_client_ca, "", "PEM file of the certificates that sign those of agents, which must then have one");
ABSL_FLAG(bool, insecure, false, "listen on addresses that other machines can reach without asking for tokens, or in clear");
ABSL_FLAG(absl::Duration, insecure_reminder, absl::Hours(1),
          "how often the log repeats that other machines can reach the server");
ABSL_FLAG(std::string, data, "", "folder of the store, created if missing; short for --store=sqlite:DATA/legoai.db");
ABSL_FLAG(std::string, store, "",
          "sqlite:PATH or postgresql://USER@HOST:PORT/DATABASE (PostgreSQL 15 or newer, password in PGPASSWORD); or --data");
ABSL_FLAG(std::string, advertise_address, "",
          "HOST:PORT at which agents and other servers over the same PostgreSQL reach this one; --listen, with this host's name "
          "where that is every address, if not given");
ABSL_FLAG(absl::Duration, leader_lease, absl::Seconds(5),
          "of several servers over one PostgreSQL: how long the one that leads may write nothing before another takes over");
ABSL_FLAG(absl::Duration, store_check, absl::Minutes(1), "how long to check the store's files for damage at startup");
ABSL_FLAG(bool, repair, false, "copy what is readable of a damaged store to a new one beside it, print a report, and exit");
ABSL_FLAG(std::string, web, "", "folder of the built page; by default web beside the folder of this program, if it exists");
ABSL_FLAG(std::string, sim, "", "path of lego-sim; empty: beside this program");
ABSL_FLAG(int64_t, sim_processes, 0, "lego-sim processes that plan; 0: as many as this host has cores");
ABSL_FLAG(absl::Duration, lease_ttl, absl::Seconds(15), "how long an agent may be silent before its jobs restart elsewhere");
ABSL_FLAG(absl::Duration, heartbeat_interval, absl::Seconds(2), "how often agents send heartbeats");
ABSL_FLAG(absl::Duration, replan_grace, absl::Seconds(30), "how long a job waits for lost slots before it is planned for fewer");
ABSL_FLAG(bool, preempt, false, "running jobs of lower priority save and make room for one that waits behind nobody who could use its workers");
ABSL_FLAG(absl::Duration, preempt_grace, legoai::server::kDefaultStopGrace, "how long they may take to save, with --preempt");
ABSL_FLAG(absl::Duration, forget_workers, absl::Hours(168), "how long a lost worker stays listed");

namespace legoai::server {
namespace {

// For the calls of users and what agents tell. Plans and simulations, which take seconds, have six of them at the most
// (GrpcLimits, HttpOptions).
constexpr int kThreads = 32;
constexpr int kWriters = 8;  // of them, for what agents tell

absl::Status TimeError(const std::string& field, absl::Duration value, const std::string& remedy) {
  return FieldError(field, absl::FormatDuration(value), remedy);
}

// With times that contradict each other every agent would be given up again and again.
absl::StatusOr<ControllerOptions> ReadTimes() {
  ControllerOptions options;
  options.lease_ttl = absl::GetFlag(FLAGS_lease_ttl);
  options.heartbeat_interval = absl::GetFlag(FLAGS_heartbeat_interval);
  options.replan_grace = absl::GetFlag(FLAGS_replan_grace);
  options.preempt = absl::GetFlag(FLAGS_preempt);
  options.preempt_grace = absl::GetFlag(FLAGS_preempt_grace);
  options.forget_workers = absl::GetFlag(FLAGS_forget_workers);
  if (options.heartbeat_interval < absl::Milliseconds(20) || options.heartbeat_interval > absl::Minutes(1))
    return TimeError("--heartbeat_interval", options.heartbeat_interval, "must be 20ms to 1m");
  if (options.lease_ttl < 2 * options.heartbeat_interval)
    return TimeError("--lease_ttl", options.lease_ttl, "must be at least twice --heartbeat_interval");
  if (options.replan_grace < absl::ZeroDuration())
    return TimeError("--replan_grace", options.replan_grace, "must not be negative");
  if (options.preempt_grace <= absl::ZeroDuration() || options.preempt_grace > kLongestStopGrace)
    return TimeError("--preempt_grace", options.preempt_grace, "must be above 0 and at most 24h");
  if (options.forget_workers < options.lease_ttl)
    return TimeError("--forget_workers", options.forget_workers, "must be at least --lease_ttl");
  return options;
}

// Where the server listens, and which of that is reached from other machines.
struct Listening {
  ListenAddress grpc;
  std::optional<ListenAddress> http;
  std::vector<std::string> open;
};

access::TlsFiles TlsFlags() {
  return {absl::GetFlag(FLAGS_tls_cert), absl::GetFlag(FLAGS_tls_key), absl::GetFlag(FLAGS_tls_client_ca)};
}

Protection ReadProtection() {
  return {.tokens = absl::GetFlag(FLAGS_tokens), .tls = TlsFlags().given(), .insecure = absl::GetFlag(FLAGS_insecure)};
}

absl::StatusOr<ListenAddress> ReadAddress(const std::string& flag, const std::string& text, std::vector<std::string>* open) {
  ASSIGN_OR_RETURN(auto address, ParseListenAddress(flag, text));
  ASSIGN_OR_RETURN(const auto numbers, ResolveHost(flag, address.host));
  Protection protection = ReadProtection();
  RETURN_IF_ERROR(CheckReachable(flag, address, numbers, protection));
  protection.insecure = false;
  if (!CheckReachable(flag, address, numbers, protection).ok()) open->push_back(absl::StrCat(flag, "=", text));
  return address;
}

absl::StatusOr<Listening> ReadListening() {
  Listening listening;
  ASSIGN_OR_RETURN(auto grpc, ReadAddress("--listen", absl::GetFlag(FLAGS_listen), &listening.open));
  listening.grpc = std::move(grpc);
  if (const std::string text = absl::GetFlag(FLAGS_http); !text.empty()) {
    ASSIGN_OR_RETURN(auto http, ReadAddress("--http", text, &listening.open));
    listening.http = std::move(http);
  }
  if (const absl::Duration every = absl::GetFlag(FLAGS_insecure_reminder); every < absl::Milliseconds(1))
    return TimeError("--insecure_reminder", every, "must be at least 1ms");
  return listening;
}

// As OpenStore() takes it.
absl::StatusOr<std::string> StoreUrl() {
  const std::string folder = absl::GetFlag(FLAGS_data), store = absl::GetFlag(FLAGS_store);
  if (folder.empty() && store.empty())
    return FieldError("--data", "", "is needed: the folder in which the store lies; or --store, for a store elsewhere");
  if (!folder.empty() && !store.empty())
    return FieldError("--data", folder, "must not be given together with --store: each of them says where the store is");
  if (!store.empty()) return store;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return FieldError("--data", folder, absl::StrCat("cannot be made: ", error.message()));
  return absl::StrCat("sqlite:", folder, "/legoai.db");
}

absl::Status Repair() {
  ASSIGN_OR_RETURN(const auto url, StoreUrl());
  RETURN_IF_ERROR(store::StoreText(url).status());
  const auto path = store::SqlitePath(url);
  if (!path) return FieldError("--repair", "", "is for SQLite's files alone: restore a backup of the database");
  const auto report = store::RepairStore(*path);
  if (report.ok()) std::cout << store::ToText(*report, *path);
  return report.status();
}

void EndFor(const absl::Status& error) {
  LogError(absl::StrCat("the server ends: ", std::string(error.message())));
  kill(getpid(), SIGTERM);
}

// What is done about damage, or a store that this server must leave alone: the server ends, since what it goes on from may be
// wrong. Trainers go on.
struct Ending {
  std::shared_ptr<store::DamageLatch> why = std::make_shared<store::DamageLatch>(EndFor);  // the first reason
  std::shared_ptr<std::atomic<bool>> told = std::make_shared<std::atomic<bool>>(false);    // the server was told to end
};

// Told to end, by a signal that waits to be taken (WaitForSignal) or was.
bool IsToldToEnd(const std::atomic<bool>& told) {
  sigset_t pending;
  sigpending(&pending);
  return told || sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
}

absl::Status SetStores(const Ending& ending, ElectionOptions* options) {
  store::SqliteOptions& sqlite = options->sqlite;
  sqlite.check_budget = absl::GetFlag(FLAGS_store_check);
  if (sqlite.check_budget <= absl::ZeroDuration()) return TimeError("--store_check", sqlite.check_budget, "must be positive");
  sqlite.on_unfinished_check = [budget = sqlite.check_budget] {
    LogWarning(absl::StrCat("the check of the store for damage was not finished within --store_check=",
                            absl::FormatDuration(budget), "; what was checked is whole"));
  };
  // Any thread may call it, and PostgreSQL's two may be called at a time.
  sqlite.on_damage = [why = ending.why](const absl::Status& error) { why->Set(error); };
  options->postgres.on_damage = options->on_end = sqlite.on_damage;
  options->postgres.on_trouble = [](const std::string& what) { LogWarning(absl::StrCat("store: ", what)); };
  options->postgres.ends = [told = ending.told] { return IsToldToEnd(*told); };
  options->lease = absl::GetFlag(FLAGS_leader_lease);
  if (options->lease < absl::Seconds(1) || options->lease > absl::Minutes(1))
    return TimeError("--leader_lease", options->lease, "must be 1s to 1m");
  return absl::OkStatus();
}

std::filesystem::path FolderOfThisProgram() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

std::string PageFolder() {
  if (const std::string folder = absl::GetFlag(FLAGS_web); !folder.empty()) return folder;
  std::error_code error;
  const auto installed = (FolderOfThisProgram() / "../web").lexically_normal();
  return std::filesystem::exists(installed / "index.html", error) ? installed.string() : "";
}

absl::StatusOr<planner::LegoSimOptions> SimOptions() {
  planner::LegoSimOptions options;
  options.program = absl::GetFlag(FLAGS_sim);
  if (options.program.empty()) options.program = (FolderOfThisProgram() / "lego-sim").string();
  if (::access(options.program.c_str(), X_OK) != 0)
    return FieldError("--sim", options.program, "is not there or cannot be run: give the path of lego-sim",
                      absl::StatusCode::kNotFound);
  options.processes = absl::GetFlag(FLAGS_sim_processes);
  if (options.processes <= 0) options.processes = static_cast<int64_t>(launch::AllowedCpus().size());
  return options;
}

int64_t NowUs() { return absl::ToUnixMicros(absl::Now()); }

absl::Duration Steady() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

void WarnOfOpenAddresses(const std::vector<std::string>& open) {
  if (open.empty()) return;
  LogWarning(absl::StrCat("the server can be reached from other machines (", absl::StrJoin(open, ", "),
                          ") without ", MissingOf(ReadProtection()), ": ",
                          absl::GetFlag(FLAGS_tokens) ? "whoever listens on the way learns the tokens"
                                                      : "whoever reaches it can do everything"));
}

// Blocks until SIGTERM or SIGINT, which are blocked in every thread; calls `remind` every `interval`. SIGPIPE is ignored.
int WaitForSignal(absl::Duration interval, const std::function<void()>& remind) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  const timespec wait = absl::ToTimespec(interval);
  while (true) {
    if (const int got = sigtimedwait(&signals, nullptr, &wait); got > 0) return got;
    if (errno == EAGAIN) remind();
  }
}

void BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error with a remedy (ulimit -f), not the end
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// gRPC looks at the files itself, every second.
std::shared_ptr<grpc::ServerCredentials> GrpcCredentials() {
  namespace tls = grpc::experimental;
  const access::TlsFiles files = TlsFlags();
  if (!files.given()) return grpc::InsecureServerCredentials();
  constexpr unsigned kSeconds = 1;
  const auto provider =
      files.client_ca.empty()
          ? std::make_shared<tls::FileWatcherCertificateProvider>(files.key, files.certificate, kSeconds)
          : std::make_shared<tls::FileWatcherCertificateProvider>(files.key, files.certificate, files.client_ca, kSeconds);
  tls::TlsServerCredentialsOptions options(provider);
  options.watch_identity_key_cert_pairs();
  if (!files.client_ca.empty()) {
    options.watch_root_certs();
    // Users may have none, since they have tokens; of agents the service asks for it.
    options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return tls::TlsServerCredentials(options);
}

// How a server that follows calls the leader.
absl::StatusOr<ChannelSecurity> LeaderSecurity(const std::string& store_url) {
  ChannelSecurity security;
  security.ca_option = "--peer_tls_ca";
  if (!TlsFlags().given() || store::SqlitePath(store_url)) return security;
  security.ca = absl::GetFlag(FLAGS_peer_tls_ca).empty() ? TlsFlags().client_ca : absl::GetFlag(FLAGS_peer_tls_ca);
  if (security.ca.empty()) {
    return FieldError(security.ca_option, "",
                      "is needed where TLS goes with a store that several servers share: a PEM file of the certificates that "
                      "they trust each other by");
  }
  RETURN_IF_ERROR(MakeChannel("localhost:1", security, grpc::ChannelArguments()).status());
  return security;
}

// The file that a flag names, or this one in --data.
absl::StatusOr<std::string> FileOf(const char* flag, const std::string& given, const char* name) {
  if (!given.empty()) return given;
  if (const std::string folder = absl::GetFlag(FLAGS_data); !folder.empty()) return absl::StrCat(folder, "/", name);
  return FieldError(flag, "", "is needed with --tokens and --store: the name of a file");
}

// Where tokens are asked for: the gate, and what is written down of those who pass it.
struct Access {
  std::unique_ptr<access::AuditLog> audit;
  std::unique_ptr<access::Users> users;  // null: there are tokens alone
  std::unique_ptr<access::Gate> gate;  // null: nobody is asked
};

OidcFlags ReadOidcFlags() {
  return {.issuer = absl::GetFlag(FLAGS_oidc_issuer),
          .audience = absl::GetFlag(FLAGS_oidc_audience),
          .jwks = absl::GetFlag(FLAGS_oidc_jwks),
          .tls_ca = absl::GetFlag(FLAGS_oidc_tls_ca),
          .roles = absl::GetFlag(FLAGS_oidc_roles),
          .groups_claim = absl::GetFlag(FLAGS_oidc_groups_claim),
          .name_claim = absl::GetFlag(FLAGS_oidc_name_claim)};
}

absl::StatusOr<Access> MakeAccess(store::Store* store, std::unique_ptr<access::Users> users) {
  Access made;
  made.users = std::move(users);
  if (!absl::GetFlag(FLAGS_tokens)) return made;
  ASSIGN_OR_RETURN(const auto audit, FileOf("--audit_log", absl::GetFlag(FLAGS_audit_log), "audit.jsonl"));
  ASSIGN_OR_RETURN(made.audit, access::AuditLog::Open(audit));
  access::GateOptions options;
  options.audit = made.audit.get();
  options.users = made.users.get();
  options.calls_per_second = absl::GetFlag(FLAGS_calls_per_second);
  if (!(options.calls_per_second >= 0 && options.calls_per_second <= 1e9))
    return FieldError("--calls_per_second", absl::StrCat(options.calls_per_second), "must be 0 or more");
  options.calls_at_once = 10 * options.calls_per_second;
  made.gate = std::make_unique<access::Gate>(store, NowUs, options);
  return made;
}

absl::StatusOr<std::string> FirstTokenFile() {
  return FileOf("--first_token_file", absl::GetFlag(FLAGS_first_token_file), "first_operator.token");
}

// Whoever begins to lead sees to it that an operator has a token: this server may have followed when tokens were first asked for.
absl::Status MakeFirstToken(store::Store& store) {
  ASSIGN_OR_RETURN(const auto file, FirstTokenFile());
  ASSIGN_OR_RETURN(const bool made, access::Tokens(&store, nullptr, NowUs).MakeFirst(file));
  if (made) LogInfo("made a token for the first operator, for 30 days", {}, {{"path", file}});
  return absl::OkStatus();
}

// Warns of tokens that nobody asks for, and where nobody has one who could let others in. Errors: those of the store.
absl::Status LookAtTokens(access::Tokens* tokens, const access::Gate* gate) {
  ASSIGN_OR_RETURN(const auto list, tokens->List(access::Anybody()));
  if (gate == nullptr && !list.tokens().empty())
    LogWarning("the store has tokens, but this server asks for none, and whoever reaches it can do everything: give --tokens");
  if (gate == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool has_operator, tokens->HasOperator());
  if (has_operator) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto file, FirstTokenFile());
  LogWarning("no operator has a token that counts: this server makes one when it leads", {}, {{"path", file}});
  return absl::OkStatus();
}

// A store that is away, or goes just now, keeps no server from its start.
absl::Status PrepareTokens(access::Tokens* tokens, access::Gate* gate, const Election& election) {
  absl::Status status = election.Ready().status();
  if (status.ok()) status = LookAtTokens(tokens, gate);
  if (status.ok() && gate != nullptr) status = gate->Begin();
  if (!absl::IsUnavailable(status) && !absl::IsAborted(status)) return status;
  if (gate != nullptr) gate->BeginLater();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<grpc::Server>> ListenGrpc(const ListenAddress& address,
                                                         const std::vector<grpc::Service*>& services, int* port) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second server must see that the port is in use
  SetKeepalive(Keepalive(), &builder);
  SetMetadataLimit(&builder);
  builder.SetMaxReceiveMessageSize(kMostRequestBytes);
  const std::string target = ToText(address);
  builder.AddListeningPort(target, GrpcCredentials(), port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || *port == 0)
    return FieldError("--listen", target, "cannot be listened on: the port is in use, or the address is not of this host");
  return server;
}

// `times`: as ReadTimes() has them.
absl::StatusOr<ElectionOptions> ReadElection(ControllerOptions times, const ListenAddress& listening, const std::string& url,
                                             const Ending& ending, Metrics* metrics) {
  ElectionOptions options;
  options.controller = std::move(times);
  ASSIGN_OR_RETURN(planner::LegoSimOptions one, SimOptions());
  options.store_url = url;
  ASSIGN_OR_RETURN(auto address, AdvertisedAddress(absl::GetFlag(FLAGS_advertise_address), listening));
  if (!store::SqlitePath(url)) options.address = std::move(address);
  RETURN_IF_ERROR(SetStores(ending, &options));
  if (absl::GetFlag(FLAGS_tokens)) {
    RETURN_IF_ERROR(FirstTokenFile().status());
    options.before_reign = MakeFirstToken;
  }
  options.controller.simulators = one.processes;
  one.processes = 1;
  options.controller.make_estimator = [one] { return std::make_unique<planner::LegoSimPool>(one); };
  options.controller.now_us = NowUs;
  options.controller.steady = Steady;
  options.controller.metrics = metrics;
  return options;
}

void SetGauges(Election& election, Metrics* metrics) {
  const Leadership leading = election.Leading();
  metrics->SetLeading(leading.leads, leading.leader ? leading.leader->term() : 0);
  if (!leading.leads) return ClearGauges(metrics);
  SetWorkerGauges(election.Workers(), metrics);
  if (absl::Status status = SetJobGauges(election, metrics); !status.ok()) LogError(std::string(status.message()));
}

struct Http {
  std::unique_ptr<access::ServerTls> tls;  // null: in clear
  std::unique_ptr<HttpServer> server;      // null: not asked for
  int port() const { return server ? server->port() : 0; }
};

absl::StatusOr<Http> StartHttp(const std::optional<ListenAddress>& address, access::Gate* gate, Handlers handlers,
                               ThreadPool* pool, Notifier* notifier, Metrics* metrics) {
  Http http;
  if (!address) return http;
  if (TlsFlags().given()) {
    ASSIGN_OR_RETURN(http.tls, access::ServerTls::Load(TlsFlags()));
  }
  HttpOptions options;
  options.address = address->host;
  options.port = address->port;
  options.web_directory = PageFolder();
  options.host_names = absl::GetFlag(FLAGS_http_host_names);
  options.gate = gate;
  options.tls = http.tls.get();
  ASSIGN_OR_RETURN(http.server, HttpServer::Start(options, std::move(handlers), pool, notifier, metrics));
  return http;
}

absl::Status Serve() {
  RETURN_IF_ERROR(access::CheckTlsFiles(TlsFlags()));
  ASSIGN_OR_RETURN(const auto listening, ReadListening());
  ASSIGN_OR_RETURN(auto times, ReadTimes());
  ASSIGN_OR_RETURN(const auto url, StoreUrl());
  ASSIGN_OR_RETURN(const auto store_text, store::StoreText(url));
  ASSIGN_OR_RETURN(const auto leader_security, LeaderSecurity(url));
  ASSIGN_OR_RETURN(auto oidc_users, MakeUsers(ReadOidcFlags(), absl::GetFlag(FLAGS_tokens)));

  Notifier notifier;
  Metrics metrics;
  Ending ending;
  ASSIGN_OR_RETURN(auto election_options, ReadElection(std::move(times), listening.grpc, url, ending, &metrics));
  Election election(std::move(election_options), &notifier);
  // Agents that come back at once find the leases that the store has.
  const absl::Status started = election.Start();
  if (!started.ok()) return absl::IsCancelled(started) ? absl::OkStatus() : started;
  LeaderClient leader([&election] { return election.Leading(); }, leader_security);
  ControlPlane control_plane(&election, &election, &notifier, NowUs);

  ASSIGN_OR_RETURN(const auto asked, MakeAccess(&election, std::move(oidc_users)));
  access::Gate* const gate = asked.gate.get();
  access::Tokens tokens(&election, gate, NowUs);
  RETURN_IF_ERROR(PrepareTokens(&tokens, gate, election));

  ThreadPool pool(kThreads);
  GrpcControlPlane users(&control_plane, &pool, {}, &metrics, gate, &leader);
  const auto agents = MakeWorkerService([&election] { return election.LeadingController(); }, &pool, kWriters,
                                        {.gate = gate, .certificates = !TlsFlags().client_ca.empty()});
  const auto access_control = MakeAccessControlService(&tokens, gate, asked.audit.get(), &pool);
  int grpc_port = 0;
  ASSIGN_OR_RETURN(auto grpc_server,
                   ListenGrpc(listening.grpc, {users.service(), agents.get(), access_control.get()}, &grpc_port));

  Handlers handlers = ControlPlaneHandlers(&control_plane, [&] { SetGauges(election, &metrics); });
  handlers.leader = &leader;
  handlers.ready = [&election] { return election.Ready(); };
  ASSIGN_OR_RETURN(auto http, StartHttp(listening.http, gate, std::move(handlers), &pool, &notifier, &metrics));
  LogInfo(absl::StrCat("legoai-server ", std::string(launch::BuildVersion()), " serves"), {},
          {{"grpc", ToText({listening.grpc.host, grpc_port})},
           {"http_port", static_cast<int64_t>(http.port())},
           {"store", store_text},
           {"leads", election.Leading().leads ? "yes" : "no"}});
  WarnOfOpenAddresses(listening.open);

  const int got = WaitForSignal(absl::GetFlag(FLAGS_insecure_reminder), [&] { WarnOfOpenAddresses(listening.open); });
  *ending.told = true;
  LogInfo(absl::StrCat("ends: ", strsignal(got), "; running trainers go on"));
  http.server.reset();
  users.EndWatches();
  grpc_server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  grpc_server->Wait();
  return ending.why->Get();
}

}  // namespace
}  // namespace legoai::server

int main(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", 0);  // the library's own lines are no JSON; what goes wrong is in the status
  legoai::launch::SetProgramHelp(
      "the control plane of LegoAI: plans submitted jobs, gives them workers, keeps what happened.\n"
      "Example: legoai-server --data=/var/lib/legoai --web=/usr/lib/legoai/web",
      "server/main/main.cc");
  if (absl::Status status = legoai::CheckArguments({argv + 1, argv + argc}); !status.ok()) {
    legoai::server::LogError(std::string(status.message()));
    return 2;
  }
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  legoai::server::BlockSignals();
  const absl::Status status = words.size() > 1
                                  ? legoai::FieldError("argument", words[1], "is not an option: options begin with --")
                              : absl::GetFlag(FLAGS_repair) ? legoai::server::Repair()
                                                            : legoai::server::Serve();
  if (status.ok()) return 0;
  legoai::server::LogError(std::string(status.message()));
  const bool of_the_call = legoai::GetFieldViolation(status) && !absl::IsDataLoss(status) && !absl::IsUnavailable(status) &&
                           !absl::IsResourceExhausted(status);
  return of_the_call ? 2 : 1;
}
