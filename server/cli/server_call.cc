#include "server/cli/server_call.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "server/jobs/names.h"

namespace legoai::cli {
namespace {

constexpr char kEnvironment[] = "LEGOAI_SERVER";
constexpr int64_t kLatest = 1000;
constexpr char kParent[] = "projects/default";

absl::Status CheckAddress(const std::string& source, const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  const bool legal = colon != std::string::npos && colon > 0 && absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 1 &&
                     port <= 65535 && address.find_first_of("/ \t") == std::string::npos;
  if (legal || absl::StartsWith(address, "unix:")) return absl::OkStatus();
  return FieldError(source, address, absl::StrCat("must be HOST:PORT, as in ", kDefaultServer));
}

// Ids are in capitals; who types one may not be.
std::string OfDefaultProject(const std::string& id) { return server::FormatJobName("default", absl::AsciiStrToUpper(id)); }

absl::StatusOr<std::string> FindAmongLatest(Client& client, const std::string& text) {
  v1::ListJobsRequest request;
  request.set_parent(kParent);
  request.set_page_size(kLatest);
  const auto jobs = client.ListJobs(request);
  if (!jobs.ok()) return jobs.status();
  const std::string part = absl::AsciiStrToUpper(text);
  std::vector<const v1::Job*> found;
  for (const v1::Job& job : jobs->jobs()) {
    const std::string id = IdOf(job.name());
    if (absl::StartsWith(id, part) || absl::EndsWith(id, part)) found.push_back(&job);
  }
  if (found.size() == 1) return found[0]->name();
  if (found.empty())
    return FieldError(
        "JOB", text,
        absl::StrCat("is neither the beginning nor the end of an id of the latest ", kLatest, " jobs; `lego list` shows them"),
        absl::StatusCode::kNotFound);
  return FieldError("JOB", text,
                    absl::StrCat("fits ", found.size(), " jobs, ", IdOf(found[0]->name()), " and ", IdOf(found[1]->name()),
                                 " among them; give more of it"));
}

}  // namespace

Option ServerOption() {
  return {"server", "ADDRESS",
          absl::StrCat("HOST:PORT of the server; ", kEnvironment, " or ", kDefaultServer, " if it is not given")};
}

absl::StatusOr<std::string> ServerAddress(const Arguments& arguments) {
  std::string source = "--server", address = arguments.Text("server");
  const char* environment = std::getenv(kEnvironment);
  if (!arguments.Has("server") && environment && *environment) source = kEnvironment, address = environment;
  if (!arguments.Has("server") && address.empty()) return std::string(kDefaultServer);
  if (absl::Status status = CheckAddress(source, address); !status.ok()) return status;
  return address;
}

absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const Arguments& arguments) {
  auto address = ServerAddress(arguments);
  if (!address.ok()) return address.status();
  return std::make_unique<Client>(*address);
}

bool IsJob(const std::string& text) {
  return server::ParseJobName("JOB", text).ok() || server::ParseJobName("JOB", OfDefaultProject(text)).ok();
}

absl::StatusOr<std::string> FindJobName(Client& client, const std::string& text) {
  if (absl::StartsWith(text, "projects/")) {
    if (const auto parsed = server::ParseJobName("JOB", text); !parsed.ok()) return parsed.status();
    return text;
  }
  if (IsJob(text)) return OfDefaultProject(text);
  if (text.empty()) return FieldError("JOB", text, "is empty; give an id, or a part of one");
  return FindAmongLatest(client, text);
}

std::string IdOf(const std::string& job_name) { return job_name.substr(job_name.rfind('/') + 1); }

}  // namespace legoai::cli
