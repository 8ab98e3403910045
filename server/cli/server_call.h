// Shared by commands that talk to a server: its address, and which job is meant.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/cli/arguments.h"
#include "server/cli/client.h"

namespace legoai::cli {

inline constexpr char kDefaultServer[] = "127.0.0.1:7420";

// --server.
Option ServerOption();

// --project, --token-file and what TLS needs: every command with --server has them (AllOptions).
std::vector<Option> CallOptions();

// The resource name of the project, from --project, LEGOAI_PROJECT or the default. Errors: no name of one.
absl::StatusOr<std::string> ProjectOf(const Arguments& arguments);

// From --server, LEGOAI_SERVER or the default. Errors: not HOST:PORT.
absl::StatusOr<std::string> ServerAddress(const Arguments& arguments);
// A client of that server, with the token and the certificates that the call names. Errors: those of MakeChannel
// (proto/channel.h), and of the token's file.
absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const Arguments& arguments);
// The token and the certificates that the call names. Errors: of the token's file.
absl::StatusOr<ChannelSecurity> ReadSecurity(const Arguments& arguments);

// The resource name of a job. `text` is a resource name, an id in the client's project, a unique prefix or suffix of an id among
// the latest 1,000 jobs, or a display name of one of these: of several with this name the latest that has not ended, or else the
// newest, which is reported on standard error. Errors (field JOB): no job, or several, which are listed.
absl::StatusOr<std::string> FindJobName(Client& client, const std::string& text);

// Whether `text` can only be a job: a resource name, or a full id.
bool IsJob(const std::string& text);

// For commands that take files or a job: a job is meant if --server is given, or if the only word is not an existing file or
// folder and does not look like a path.
bool RefersToJob(const Arguments& arguments);

struct NamedJob {
  std::unique_ptr<Client> client;
  std::string name;
};
// That job, and a client of its server.
absl::StatusOr<NamedJob> FindNamedJob(const Arguments& arguments);

// "01J..." of a resource name.
std::string IdOf(const std::string& job_name);

}  // namespace legoai::cli
