#include "server/cli/server_call.h"

#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/process/secret_file.h"
#include "proto/channel.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/server_list.h"
#include "proto/status.h"
#include "proto/text.h"
#include "server/jobs/names.h"
#include "server/jobs/transition.h"

namespace legoai::cli {
namespace {

constexpr char kEnvironment[] = "LEGOAI_SERVER";
constexpr char kTokenEnvironment[] = "LEGOAI_TOKEN";
constexpr char kTokenFileEnvironment[] = "LEGOAI_TOKEN_FILE";
constexpr char kCaEnvironment[] = "LEGOAI_TLS_CA";
constexpr int64_t kLatest = 1000;
constexpr char kProjectEnvironment[] = "LEGOAI_PROJECT";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Ids are in capitals; who types one may not be.
std::string OfProject(const std::string& project, const std::string& id) {
  return absl::StrCat(project, "/jobs/", absl::AsciiStrToUpper(id));
}

bool IsId(const std::string& text) { return server::ParseJobName("JOB", OfProject("projects/default", text)).ok(); }

// "01J... (running, my job)".
std::string Described(const v1::Job& job) {
  const std::string& name = job.spec().display_name();
  return absl::StrCat(IdOf(job.name()), " (", EnumText(job.state()), name.empty() ? "" : ", ", name, ")");
}

std::string DescribedAll(const std::vector<const v1::Job*>& jobs) {
  constexpr size_t kMost = 10;
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(kMost, jobs.size()); ++i) lines.push_back(Described(*jobs[i]));
  if (jobs.size() > kMost) lines.push_back(absl::StrCat("and ", jobs.size() - kMost, " more"));
  return absl::StrJoin(lines, "\n  ");
}

// Of jobs with the same name, the latest first: the one that is under way, or else the newest. `name`: for the note that tells.
const v1::Job& Preferred(const std::vector<const v1::Job*>& jobs, const std::string& name) {
  const auto active = std::find_if(jobs.begin(), jobs.end(), [](const v1::Job* job) { return !server::IsFinal(job->state()); });
  const v1::Job& taken = active == jobs.end() ? *jobs.front() : **active;
  if (jobs.size() > 1) {
    std::fprintf(stderr, "note: %zu jobs are called %s; this is the %s one, %s\n", jobs.size(), Printable(name).c_str(),
                 active == jobs.end() ? "newest" : "latest active", Described(taken).c_str());
  }
  return taken;
}

absl::StatusOr<std::string> FindAmongLatest(Client& client, const std::string& text) {
  v1::ListJobsRequest request;
  request.set_parent(client.project());
  request.set_page_size(kLatest);
  ASSIGN_OR_RETURN(const auto jobs, client.ListJobs(request));
  const std::string part = absl::AsciiStrToUpper(text);
  std::vector<const v1::Job*> found, named;
  for (const v1::Job& job : jobs.jobs()) {
    const std::string id = IdOf(job.name());
    const bool called = job.spec().display_name() == text;
    if (called) named.push_back(&job);
    if (called || absl::StartsWith(id, part) || absl::EndsWith(id, part)) found.push_back(&job);
  }
  if (found.size() == 1) return found[0]->name();
  if (!named.empty() && named.size() == found.size()) return Preferred(named, text).name();
  if (found.empty())
    return FieldError("JOB", text,
                      absl::StrCat("is neither the name nor the beginning or end of an id of the latest ", kLatest,
                                   " jobs; `lego list` shows them"),
                      absl::StatusCode::kNotFound);
  return FieldError("JOB", text,
                    absl::StrCat("fits ", found.size(), " jobs; give more of the id of one:\n  ", DescribedAll(found)));
}

}  // namespace

Option ServerOption() {
  return {"server", "ADDRESS",
          absl::StrCat("HOST:PORT of the server, or of several over one store, with commas; ", kEnvironment, " or ",
                       kDefaultServer, " if it is not given")};
}

absl::StatusOr<std::string> ServerAddress(const Arguments& arguments) {
  std::string source = "--server", address = arguments.Text("server");
  const char* environment = std::getenv(kEnvironment);
  if (!arguments.Has("server") && environment && *environment) source = kEnvironment, address = environment;
  if (!arguments.Has("server") && address.empty()) return std::string(kDefaultServer);
  RETURN_IF_ERROR(ServerList::Parse(source, address).status());
  return address;
}

absl::StatusOr<std::string> ProjectOf(const Arguments& arguments) {
  const bool told = arguments.Has("project");
  const std::string text = told ? arguments.Text("project") : Environment(kProjectEnvironment);
  if (!told && text.empty()) return std::string("projects/default");
  const std::string name = absl::StartsWith(text, "projects/") ? text : "projects/" + text;
  const char* const source = told ? "--project" : kProjectEnvironment;
  if (server::ParseProjectName(source, name).ok()) return name;
  return FieldError(source, text, "must be a project: lower-case letters, digits and dashes that begin with a letter");
}

std::vector<Option> CallOptions() {
  return {{"project", "PROJECT", absl::StrCat("whose jobs are meant; ", kProjectEnvironment, " or default if it is not given")},
          {"token-file", "FILE", absl::StrCat("holds the token to call with; ", kTokenEnvironment, " or ", kTokenFileEnvironment,
                                              " if it is not given")},
          {"tls-ca", "FILE", absl::StrCat("certificates by which the server is known, for TLS; ", kCaEnvironment,
                                          " if it is not given")},
          {"tls-cert", "FILE", "this caller's certificate, where the server asks for one"},
          {"tls-key", "FILE", "its key"},
          {"insecure", "", "sends the token in clear to another machine, too"}};
}

absl::StatusOr<ChannelSecurity> ReadSecurity(const Arguments& arguments) {
  ChannelSecurity security;
  security.ca = arguments.Text("tls-ca", Environment(kCaEnvironment));
  security.certificate = arguments.Text("tls-cert");
  security.key = arguments.Text("tls-key");
  security.insecure = arguments.Has("insecure");
  std::string source = "--token-file", file = arguments.Text("token-file");
  if (file.empty()) {
    security.token = Environment(kTokenEnvironment);
    source = kTokenFileEnvironment, file = Environment(kTokenFileEnvironment);
  }
  if (!security.token.empty() || file.empty()) return security;
  ASSIGN_OR_RETURN(security.token, launch::ReadSecretFile(source, file));
  return security;
}

absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const Arguments& arguments) {
  ASSIGN_OR_RETURN(auto address, ServerAddress(arguments));
  ASSIGN_OR_RETURN(auto servers, ServerList::Parse("--server", address));
  ASSIGN_OR_RETURN(auto security, ReadSecurity(arguments));
  ASSIGN_OR_RETURN(auto project, ProjectOf(arguments));
  ASSIGN_OR_RETURN(auto client, Client::Open(std::move(servers), std::move(security)));
  client->set_project(std::move(project));
  return client;
}

bool RefersToJob(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.positional();
  std::error_code error;
  if (arguments.Has("server")) return true;
  if (words.size() != 1 || std::filesystem::exists(words[0], error)) return false;
  return IsJob(words[0]) || words[0].find('/') == std::string::npos;
}

absl::StatusOr<NamedJob> FindNamedJob(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.positional();
  if (words.size() != 1) return FieldError("JOB", words[1], "is one word too many: with --server there is one job");
  ASSIGN_OR_RETURN(auto client, ConnectTo(arguments));
  auto name = FindJobName(*client, words[0]);
  if (!name.ok() && !arguments.Has("server") && !IsJob(words[0]))
    return Annotate(name.status(), absl::StrCat("there is no file or folder ", words[0], " here, so a job is meant"));
  if (!name.ok()) return name.status();
  return NamedJob{std::move(client), *std::move(name)};
}

bool IsJob(const std::string& text) {
  return server::ParseJobName("JOB", text).ok() || IsId(text);
}

absl::StatusOr<std::string> FindJobName(Client& client, const std::string& text) {
  if (absl::StartsWith(text, "projects/")) {
    if (const auto parsed = server::ParseJobName("JOB", text); !parsed.ok()) return parsed.status();
    return text;
  }
  if (IsId(text)) return OfProject(client.project(), text);
  if (text.empty()) return FieldError("JOB", text, "is empty; give an id, or a part of one");
  return FindAmongLatest(client, text);
}

std::string IdOf(const std::string& job_name) { return job_name.substr(job_name.rfind('/') + 1); }

}  // namespace legoai::cli
