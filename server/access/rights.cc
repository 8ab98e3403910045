#include "server/access/rights.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::access {
namespace {

// To whom what a call is about must belong.
enum class Scope {
  kProject,  // the project in the request's `name` or `parent`, which must be the caller's
  kAny,      // no project's: who has a role in any may do it
  kTokens,   // the tokens of the caller's project: server/access/tokens.cc looks at each
};

struct Right {
  std::string_view call;
  v1::Role least;
  Scope scope;
};

// Agents are beside the other roles: they may do what is theirs, and nothing else.
constexpr Right kRights[] = {
    {"legoai.v1.ControlPlane/CreateJob", v1::EDITOR, Scope::kProject},
    {"legoai.v1.ControlPlane/GetJob", v1::VIEWER, Scope::kProject},
    {"legoai.v1.ControlPlane/ListJobs", v1::VIEWER, Scope::kProject},
    {"legoai.v1.ControlPlane/WatchJob", v1::VIEWER, Scope::kProject},
    {"legoai.v1.ControlPlane/CancelJob", v1::EDITOR, Scope::kProject},
    {"legoai.v1.ControlPlane/RetryJob", v1::EDITOR, Scope::kProject},
    {"legoai.v1.ControlPlane/ListTransitions", v1::VIEWER, Scope::kProject},
    {"legoai.v1.ControlPlane/ListAttempts", v1::VIEWER, Scope::kProject},
    {"legoai.v1.ControlPlane/ListCheckpoints", v1::VIEWER, Scope::kProject},
    {"legoai.v1.ControlPlane/GetPlan", v1::VIEWER, Scope::kProject},
    {"legoai.v1.ControlPlane/QueryMetrics", v1::VIEWER, Scope::kProject},
    {"legoai.v1.ControlPlane/ListStepTraces", v1::VIEWER, Scope::kProject},
    {"legoai.v1.ControlPlane/GetStepTrace", v1::VIEWER, Scope::kProject},
    {"legoai.v1.ControlPlane/GetPredictedTrace", v1::VIEWER, Scope::kProject},
    {"legoai.v1.ControlPlane/ListLogs", v1::VIEWER, Scope::kProject},
    {"legoai.v1.ControlPlane/GetFlightRecord", v1::VIEWER, Scope::kProject},
    {"legoai.v1.ControlPlane/ListProjects", v1::VIEWER, Scope::kAny},
    {"legoai.v1.ControlPlane/ListWorkers", v1::VIEWER, Scope::kAny},
    {"legoai.v1.ControlPlane/GetWorker", v1::VIEWER, Scope::kAny},
    {"legoai.v1.ControlPlane/DrainWorker", v1::OPERATOR, Scope::kAny},
    {"legoai.v1.ControlPlane/CheckWorker", v1::OPERATOR, Scope::kAny},
    {"legoai.v1.ControlPlane/Plan", v1::EDITOR, Scope::kAny},
    {"legoai.v1.ControlPlane/Simulate", v1::EDITOR, Scope::kAny},
    {"legoai.v1.ControlPlane/GetServerInfo", v1::VIEWER, Scope::kAny},
    {"legoai.v1.AccessControl/CreateToken", v1::ADMIN, Scope::kTokens},
    {"legoai.v1.AccessControl/ListTokens", v1::ADMIN, Scope::kTokens},
    {"legoai.v1.AccessControl/RevokeToken", v1::ADMIN, Scope::kTokens},
    {"legoai.v1.AccessControl/ListAuditRecords", v1::OPERATOR, Scope::kAny},
    {"legoai.v1.WorkerService/Connect", v1::AGENT, Scope::kAny},
    // Paths of HTTP that are no methods. Whoever reaches the server may have what is not here: /healthz and /readyz, the page's
    // files, which hold nothing of any project, the catalog, which is the program's own, and /session, which asks for a token.
    {"/v1/events", v1::VIEWER, Scope::kAny},
    {"/metrics", v1::VIEWER, Scope::kAny},
};

const Right* Find(std::string_view call) {
  for (const Right& right : kRights) {
    if (right.call == call) return &right;
  }
  return nullptr;
}

bool HasRole(v1::Role role, v1::Role least) {
  if (role == v1::AGENT || least == v1::AGENT) return role == least;
  return role >= least;
}

// Its text of this name; empty: it has none.
std::string FieldOf(const google::protobuf::Message& request, const char* name) {
  const auto* field = request.GetDescriptor()->FindFieldByName(name);
  return field == nullptr ? "" : request.GetReflection()->GetString(request, field);
}

absl::Status Denied(const Identity& who, v1::Role role, const Right& right) {
  return FieldError("token", NameOf(who),
                    absl::StrCat("has the role ", EnumText(role), ", and ", std::string(right.call), " needs ",
                                 EnumText(right.least), ": ask who administers the project for ",
                                 who.subject.empty() ? "such a token" : "a group that has it"),
                    absl::StatusCode::kPermissionDenied);
}

// A role in one project is none in another.
absl::Status CheckProject(const Identity& who, const Right& right, const google::protobuf::Message* request) {
  // A name that is none the handler refuses.
  if (HasRole(RoleIn(who, kAllProjects), right.least)) return absl::OkStatus();
  if (request == nullptr) return absl::InternalError("a call about a project came without its request");
  const char* const field = request->GetDescriptor()->FindFieldByName("parent") != nullptr ? "parent" : "name";
  const std::string name = FieldOf(*request, field);
  const std::string_view project = ProjectOf(name);
  if (project.empty()) return FieldError(field, name.substr(0, 200), "must begin with a project, \"projects/default\"");
  const v1::Role role = RoleIn(who, project);
  if (HasRole(role, right.least)) return absl::OkStatus();
  if (role != v1::ROLE_UNSPECIFIED) return Denied(who, role, right);
  return FieldError(field, name.substr(0, 200), "is not there, or not in a project of yours", absl::StatusCode::kNotFound);
}

void HideJobs(const Identity& who, v1::Worker* worker) {
  for (v1::SlotUse& use : *worker->mutable_used()) {
    if (!Sees(who, ProjectOf(use.job()))) use.clear_job();
  }
}

// Those in which the caller has a role of its own, before they have jobs, too; and all others of who sees them all.
void HideProjects(const Identity& who, v1::ListProjectsResponse* list) {
  std::set<std::string> own;
  for (const Grant& grant : who.grants) {
    if (!grant.project.empty() && grant.project != kAllProjects) own.insert(grant.project);
  }
  if (Sees(who, kAllProjects)) {
    for (const v1::Project& project : list->projects()) own.insert(project.name());
  }
  list->clear_projects();
  for (const std::string& project : own) list->add_projects()->set_name(project);
}

}  // namespace

Identity Anybody() { return {.grants = {{v1::OPERATOR, kAllProjects}}}; }

std::string NameOf(const Identity& who) { return who.subject.empty() ? who.token : absl::StrCat("users/", who.user); }

v1::Role RoleIn(const Identity& who, std::string_view project) {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  for (const Grant& grant : who.grants) {
    const bool is_there = grant.project == kAllProjects || (!project.empty() && grant.project == project);
    if (is_there) role = std::max(role, grant.role);
  }
  return role;
}

v1::Role HighestRole(const Identity& who) {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  for (const Grant& grant : who.grants) role = std::max(role, grant.role);
  return role;
}

bool Sees(const Identity& who, std::string_view project) { return RoleIn(who, project) != v1::ROLE_UNSPECIFIED; }

std::string_view ProjectOf(std::string_view name) {
  constexpr std::string_view kBegin = "projects/";
  if (!name.starts_with(kBegin)) return {};
  const std::string_view project = name.substr(0, name.find('/', kBegin.size()));
  return project.size() > kBegin.size() && project != kAllProjects ? project : std::string_view();
}

absl::Status CheckRight(const Identity& who, std::string_view call, const google::protobuf::Message* request) {
  const Right* const right = Find(call);
  if (right == nullptr) return absl::PermissionDeniedError(absl::StrCat("nobody may call ", std::string(call)));
  if (!HasRole(HighestRole(who), right->least)) return Denied(who, HighestRole(who), *right);
  return right->scope == Scope::kProject ? CheckProject(who, *right, request) : absl::OkStatus();
}

bool HasRow(std::string_view call) { return Find(call) != nullptr; }

void HideOthers(const Identity& who, google::protobuf::Message* answer) {
  using google::protobuf::DynamicCastToGenerated;
  if (auto* worker = DynamicCastToGenerated<v1::Worker>(answer)) HideJobs(who, worker);
  if (auto* list = DynamicCastToGenerated<v1::ListProjectsResponse>(answer)) HideProjects(who, list);
  if (auto* list = DynamicCastToGenerated<v1::ListWorkersResponse>(answer)) {
    for (v1::Worker& worker : *list->mutable_workers()) HideJobs(who, &worker);
  }
}

}  // namespace legoai::access
