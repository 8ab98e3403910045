// What all commands that talk to a server share: its address, and which job is meant.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/cli/arguments.h"
#include "server/cli/client.h"

namespace legoai::cli {

inline constexpr char kDefaultServer[] = "127.0.0.1:7420";

// --server.
Option ServerOption();

// From --server, LEGOAI_SERVER or the default. Errors: no HOST:PORT.
absl::StatusOr<std::string> ServerAddress(const Arguments& arguments);
absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const Arguments& arguments);

// The resource name of a job: `text` is one, or an id of projects/default, or, of one alone of the latest 1,000 jobs, the
// beginning or end of the id; or the name that people gave one of them: of several so named the latest that has not ended, or
// else the newest, and a line on standard error says which. Errors (field JOB): none, or several, which are listed.
absl::StatusOr<std::string> FindJobName(Client& client, const std::string& text);

// Whether `text` can be nothing but a job: a resource name, or a whole id.
bool IsJob(const std::string& text);

// Of commands that take files or a job: a job is meant with --server, and where the only word is no file or folder, and no path
// that could be one.
bool RefersToJob(const Arguments& arguments);

struct NamedJob {
  std::unique_ptr<Client> client;
  std::string name;
};
// That job, and the server that has it.
absl::StatusOr<NamedJob> FindNamedJob(const Arguments& arguments);

// "01J..." of a resource name.
std::string IdOf(const std::string& job_name);

}  // namespace legoai::cli
