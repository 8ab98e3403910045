#include "server/store/testing/postgres_server.h"

#include <fcntl.h>
#include <grp.h>
#include <postgresql/libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/status.h"

namespace legoai::store {
namespace {

namespace fs = std::filesystem;

constexpr char kUser[] = "postgres";

// Debian keeps a server's programs apart by version.
std::string Programs() {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& version : fs::directory_iterator("/usr/lib/postgresql", error)) {
    if (fs::exists(version.path() / "bin/postgres")) found.push_back((version.path() / "bin").string());
  }
  std::sort(found.begin(), found.end());
  return found.empty() ? "" : found.back();
}

// PostgreSQL refuses to run as root.
const passwd* OtherUser() { return geteuid() == 0 ? getpwnam(kUser) : nullptr; }

// Starts it with output to `log`; it ends with this process, immediately.
pid_t Spawn(const std::vector<std::string>& command, const std::string& log) {
  const passwd* const other = OtherUser();
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  dup2(file, STDOUT_FILENO), dup2(file, STDERR_FILENO);
  for (int other_file = 3; other_file < 1024; ++other_file) close(other_file);
  if (other != nullptr && (setgroups(0, nullptr) != 0 || setgid(other->pw_gid) != 0 || setuid(other->pw_uid) != 0)) _exit(126);
  prctl(PR_SET_PDEATHSIG, SIGQUIT);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  char locale[] = "LC_ALL=C.UTF-8", path[] = "PATH=/usr/bin:/bin";
  char* const environment[] = {locale, path, nullptr};  // not the test's, by which its own processes are found
  execve(words[0], words.data(), environment);
  _exit(127);
}

std::string Encoded(const std::string& path) { return absl::StrReplaceAll(path, {{"/", "%2F"}}); }

}  // namespace

PostgresServer& PostgresServer::OfThisProcess() {
  static const std::unique_ptr<PostgresServer> server = [] {
    auto started = Start();
    if (!started.ok()) {
      std::fprintf(stderr, "%s\n", started.status().ToString().c_str());
      std::exit(1);
    }
    return *std::move(started);
  }();
  return *server;
}

absl::StatusOr<std::unique_ptr<PostgresServer>> PostgresServer::Start(const std::string& under,
                                                                      const std::vector<std::string>& options) {
  if (Programs().empty()) return absl::FailedPreconditionError("PostgreSQL's server is needed (Debian: postgresql; tools/setup)");
  if (geteuid() == 0 && OtherUser() == nullptr) return absl::FailedPreconditionError("there is no user postgres");
  std::string folder = under + "/legoai-postgres-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::FailedPreconditionError(absl::StrCat(folder, " cannot be made"));
  std::unique_ptr<PostgresServer> server(new PostgresServer(folder, options));
  RETURN_IF_ERROR(server->Init());
  RETURN_IF_ERROR(server->StartAgain());
  return server;
}

PostgresServer::PostgresServer(std::string folder, std::vector<std::string> options)
    : folder_(std::move(folder)), options_(std::move(options)), owner_(getpid()) {}

PostgresServer::~PostgresServer() {
  if (getpid() != owner_) return;  // a forked child
  EndImmediately();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

absl::Status PostgresServer::Init() {
  if (const passwd* const other = OtherUser(); other != nullptr && chown(folder_.c_str(), other->pw_uid, other->pw_gid) != 0)
    return absl::FailedPreconditionError(absl::StrCat(folder_, " cannot be given away"));
  const pid_t made = Spawn({Programs() + "/initdb", "-D", folder_ + "/data", "-A", "trust", "-U", kUser, "-E", "UTF8",
                            "--locale=C.UTF-8", "-N"},
                           folder_ + "/log");
  int status = 0;
  if (waitpid(made, &status, 0) != made || status != 0)
    return absl::FailedPreconditionError(absl::StrCat("initdb failed: ", LogTail()));
  // A crash of the process is what is tried, not one of the machine: no waiting for the disk.
  std::ofstream settings(folder_ + "/data/postgresql.conf", std::ios::app);
  settings << "listen_addresses = ''\nfsync = off\nmax_connections = 60\nshared_buffers = 32MB\nmax_wal_size = 256MB\n";
  for (const std::string& option : options_) settings << option << "\n";
  return absl::OkStatus();
}

absl::Status PostgresServer::StartAgain() {
  process_ = Spawn({Programs() + "/postgres", "-D", folder_ + "/data", "-k", folder_, "-p", "5432"}, folder_ + "/log");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!Sql("SELECT 1").ok()) {
    if (std::chrono::steady_clock::now() > until || waitpid(process_, nullptr, WNOHANG) == process_) {
      return absl::FailedPreconditionError(absl::StrCat("PostgreSQL did not start: ", LogTail()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return absl::OkStatus();
}

PostgresOutage::~PostgresOutage() {
  if (over_) return;
  if (const absl::Status again = End(); !again.ok()) std::fprintf(stderr, "%s\n", std::string(again.message()).c_str());
}

absl::Status PostgresOutage::End() {
  over_ = true;
  return server_.StartAgain();
}

void PostgresServer::EndImmediately() {
  if (process_ == 0) return;
  for (const pid_t backend : Backends()) kill(backend, SIGCONT);
  kill(process_, SIGCONT);
  kill(process_, SIGQUIT);
  waitpid(process_, nullptr, 0);
  process_ = 0;
}

std::vector<pid_t> PostgresServer::Backends() const {
  std::vector<pid_t> backends;
  std::ifstream children(absl::StrCat("/proc/", process_, "/task/", process_, "/children"));
  for (pid_t child = 0; children >> child;) backends.push_back(child);
  return backends;
}

absl::StatusOr<std::string> PostgresServer::Sql(const std::string& sql) const {
  const std::string target = absl::StrCat("host=", folder_, " port=5432 user=", kUser, " dbname=postgres connect_timeout=30");
  const std::unique_ptr<PGconn, void (*)(PGconn*)> connection(PQconnectdb(target.c_str()), PQfinish);
  if (PQstatus(connection.get()) != CONNECTION_OK) return absl::UnavailableError(PQerrorMessage(connection.get()));
  PQsetNoticeProcessor(connection.get(), [](void*, const char*) {}, nullptr);
  const std::unique_ptr<PGresult, void (*)(PGresult*)> result(PQexec(connection.get(), sql.c_str()), PQclear);
  const ExecStatusType status = PQresultStatus(result.get());
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) return absl::InternalError(PQerrorMessage(connection.get()));
  const int rows = PQntuples(result.get());
  return rows == 0 ? "" : std::string(PQgetvalue(result.get(), rows - 1, 0));
}

std::string PostgresServer::Url(const std::string& schema) {
  const absl::Status made = Sql(absl::StrCat("CREATE SCHEMA IF NOT EXISTS ", schema)).status();
  if (!made.ok()) std::fprintf(stderr, "%s\n", made.ToString().c_str());
  return absl::StrCat("postgresql://", kUser, "@/postgres?host=", Encoded(folder_), "&port=5432&options=-csearch_path%3D",
                      schema);
}

std::string PostgresServer::UrlAs(const std::string& user, const std::string& password, const std::string& database) const {
  return absl::StrCat("postgresql://", user, ":", password, "@/", database, "?host=", Encoded(folder_), "&port=5432");
}

std::string PostgresServer::LogTail() const {
  std::ifstream file(folder_ + "/log");
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  return all.substr(all.size() > 2000 ? all.size() - 2000 : 0);
}

}  // namespace legoai::store
