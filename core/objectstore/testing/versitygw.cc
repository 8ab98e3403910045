#include "core/objectstore/testing/versitygw.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/objectstore/s3_request.h"
#include "proto/status.h"

namespace legoai::objectstore {
namespace {

namespace fs = std::filesystem;

// Beside the sources, to which the lock among this test's files is a link.
absl::StatusOr<std::string> FindProgram() {
  std::error_code error;
  const fs::path lock = fs::canonical("tools/versitygw.lock", error);
  const fs::path program = lock.parent_path().parent_path() / ".versitygw" / "versitygw";
  if (!error && fs::exists(program, error)) return program.string();
  return absl::FailedPreconditionError(absl::StrCat(program.string(), " is not there: run tools/fetch_deps versitygw"));
}

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(fd);
  return bound ? ntohs(address.sin_port) : 0;
}

pid_t Spawn(std::vector<std::string> words, const std::string& log) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  dup2(fd, 1);
  dup2(fd, 2);
  execv(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace

void UseKeys(const std::string& access, const std::string& secret) {
  setenv("AWS_ACCESS_KEY_ID", access.c_str(), 1);
  setenv("AWS_SECRET_ACCESS_KEY", secret.c_str(), 1);
}

Versitygw::Versitygw(std::string program, std::string folder, int port)
    : program_(std::move(program)), folder_(std::move(folder)), port_(port), endpoint_(absl::StrCat("http://127.0.0.1:", port)) {}

Versitygw::~Versitygw() {
  End();
  std::error_code error;
  fs::remove_all(folder_, error);
}

absl::StatusOr<std::unique_ptr<Versitygw>> Versitygw::Start(const std::string& under) {
  ASSIGN_OR_RETURN(std::string program, FindProgram());
  std::string folder = under + "/versitygw-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::FailedPreconditionError(absl::StrCat(folder, ": ", std::strerror(errno)));
  for (const char* name : {"/objects", "/facts"}) fs::create_directories(folder + name);
  std::unique_ptr<Versitygw> gateway(new Versitygw(std::move(program), std::move(folder), FreePort()));
  RETURN_IF_ERROR(gateway->StartAgain());
  for (const char* name : {"AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE"})
    unsetenv(name);
  setenv("AWS_ENDPOINT_URL_S3", gateway->endpoint().c_str(), 1);
  UseKeys(kTestAccess, kTestSecret);
  ASSIGN_OR_RETURN(const S3Options options, OptionsFromEnvironment());
  S3Request request;
  request.method = "PUT";
  request.url = BucketAddress(options, "bucket");
  const S3Reply reply = Send(options, request);
  if (reply.status != 200)
    return absl::FailedPreconditionError(absl::StrCat("no bucket: ", reply.failure, reply.status, reply.body));
  return gateway;
}

void Versitygw::End() {
  if (process_ <= 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = 0;
}

absl::Status Versitygw::StartAgain() {
  const std::string address = absl::StrCat("127.0.0.1:", port_);
  // What is known of objects beside the files, since not every file system of a test has extended attributes.
  process_ = Spawn({program_, "--port", address, "--access", kTestAccess, "--secret", kTestSecret, "--quiet", "posix",
                    "--sidecar", folder_ + "/facts", folder_ + "/objects"},
                   folder_ + "/log");
  sockaddr_in place = {};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<uint16_t>(port_));
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int look = 0; look < 3'000; ++look) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool answers = connect(fd, reinterpret_cast<sockaddr*>(&place), sizeof(place)) == 0;
    close(fd);
    if (answers) return absl::OkStatus();
    if (waitpid(process_, nullptr, WNOHANG) == process_) {
      process_ = 0;
      break;
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::FailedPreconditionError(absl::StrCat("versitygw does not answer at ", address, ": ", LogTail()));
}

std::string Versitygw::LogTail() const {
  std::ifstream file(folder_ + "/log");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.substr(text.size() - std::min<size_t>(text.size(), 600));
}

}  // namespace legoai::objectstore
