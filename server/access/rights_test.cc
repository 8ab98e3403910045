// Every call times every role, written down once more by hand: what is added without a row here, or in the table, fails.
#include "server/access/rights.h"

#include <google/protobuf/descriptor_database.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/worker_service.pb.h"
#include "server/access/users.h"

namespace legoai::access {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::Message;

// By call, who may make it: (v)iewer, (e)ditor, a(d)min, (o)perator, (a)gent. In capitals: only in the caller's own project.
const std::map<std::string, std::string> kExpected = {
    {"legoai.v1.ControlPlane/CreateJob", "EDo"},
    {"legoai.v1.ControlPlane/GetJob", "VEDo"},
    {"legoai.v1.ControlPlane/ListJobs", "VEDo"},
    {"legoai.v1.ControlPlane/WatchJob", "VEDo"},
    {"legoai.v1.ControlPlane/CancelJob", "EDo"},
    {"legoai.v1.ControlPlane/RetryJob", "EDo"},
    {"legoai.v1.ControlPlane/ListTransitions", "VEDo"},
    {"legoai.v1.ControlPlane/ListAttempts", "VEDo"},
    {"legoai.v1.ControlPlane/ListCheckpoints", "VEDo"},
    {"legoai.v1.ControlPlane/GetPlan", "VEDo"},
    {"legoai.v1.ControlPlane/QueryMetrics", "VEDo"},
    {"legoai.v1.ControlPlane/ListStepTraces", "VEDo"},
    {"legoai.v1.ControlPlane/GetStepTrace", "VEDo"},
    {"legoai.v1.ControlPlane/GetPredictedTrace", "VEDo"},
    {"legoai.v1.ControlPlane/ListLogs", "VEDo"},
    {"legoai.v1.ControlPlane/GetFlightRecord", "VEDo"},
    {"legoai.v1.ControlPlane/ListProjects", "vedo"},
    {"legoai.v1.ControlPlane/ListWorkers", "vedo"},
    {"legoai.v1.ControlPlane/GetWorker", "vedo"},
    {"legoai.v1.ControlPlane/DrainWorker", "o"},
    {"legoai.v1.ControlPlane/CheckWorker", "o"},
    {"legoai.v1.ControlPlane/Plan", "edo"},
    {"legoai.v1.ControlPlane/Simulate", "edo"},
    {"legoai.v1.ControlPlane/GetServerInfo", "vedo"},
    {"legoai.v1.AccessControl/CreateToken", "do"},
    {"legoai.v1.AccessControl/ListTokens", "do"},
    {"legoai.v1.AccessControl/RevokeToken", "do"},
    {"legoai.v1.AccessControl/ListAuditRecords", "o"},
    {"legoai.v1.WorkerService/Connect", "a"},
    {"/v1/events", "vedo"},
    {"/metrics", "vedo"},
};

const std::map<v1::Role, char> kLetters = {
    {v1::VIEWER, 'v'}, {v1::EDITOR, 'e'}, {v1::ADMIN, 'd'}, {v1::OPERATOR, 'o'}, {v1::AGENT, 'a'}};

Identity Of(v1::Role role, const std::string& project = "projects/mine") {
  return {.token = "tokens/t", .grants = {{role, role == v1::OPERATOR ? kAllProjects : role == v1::AGENT ? "" : project}}};
}

// A user of an OpenID provider, in a group of the role's letter among others: as the file of --oidc_roles says.
Identity UserOf(v1::Role role) {
  auto roles = GroupRoles::Parse(R"(
    [[grant]]
    group = "v"
    role = "viewer"
    project = "mine"
    [[grant]]
    group = "e"
    role = "editor"
    project = "projects/mine"
    [[grant]]
    group = "d"
    role = "admin"
    project = "mine"
    [[grant]]
    group = "o"
    role = "operator"
    [[grant]]
    group = "elsewhere"
    role = "admin"
    project = "mine2"
  )");
  EXPECT_TRUE(roles.ok()) << roles.status();
  std::vector<std::string> groups = {"unknown", std::string(1, kLetters.at(role)), "V", ""};
  // What is above also has what is below.
  if (role == v1::ADMIN) groups.insert(groups.begin(), {"e", "v"});
  return {.issuer = "https://idp.example", .subject = "f3a1", .user = "anna", .grants = roles->Of(groups)};
}

// All methods of all services of the package, of whichever file.
std::map<std::string, const Descriptor*> Methods() {
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  std::vector<std::string> files;
  google::protobuf::DescriptorPool::internal_generated_database()->FindAllFileNames(&files);
  std::map<std::string, const Descriptor*> methods;
  for (const std::string& name : files) {
    const auto* file = pool->FindFileByName(name);
    if (file == nullptr || file->package() != "legoai.v1") continue;
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m)
        methods[absl::StrCat(file->service(s)->full_name(), "/", file->service(s)->method(m)->name())] =
            file->service(s)->method(m)->input_type();
    }
  }
  return methods;
}

// A request about a job of `project`, or about the project, where it has such a field.
std::unique_ptr<Message> RequestAbout(const Descriptor* type, const std::string& project) {
  std::unique_ptr<Message> request(google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
  for (const char* name : {"name", "parent"}) {
    if (const auto* field = type->FindFieldByName(name))
      request->GetReflection()->SetString(request.get(), field, project + "/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV");
  }
  return request;
}

// Everybody there may be, with a token of the server's or vouched for by a provider. Agents have tokens alone.
std::vector<std::pair<Identity, v1::Role>> Callers() {
  std::vector<std::pair<Identity, v1::Role>> callers;
  for (const auto& [role, letter] : kLetters) {
    callers.emplace_back(Of(role), role);
    if (role != v1::AGENT) callers.emplace_back(UserOf(role), role);
  }
  return callers;
}

TEST(Rights, EveryCallHasARowHereAndInTheTable) {
  std::set<std::string> calls = {"/v1/events", "/metrics"};
  for (const auto& [call, type] : Methods()) calls.insert(call);
  ASSERT_GT(calls.size(), 25u);
  for (const std::string& call : calls) {
    EXPECT_TRUE(kExpected.count(call)) << call << " is not in this test";
    EXPECT_TRUE(HasRow(call)) << call << " is not in the table of rights";
  }
  EXPECT_EQ(kExpected.size(), calls.size());
}

TEST(Rights, EveryCallTimesEveryRole) {
  const auto methods = Methods();
  for (const auto& [call, letters] : kExpected) {
    const auto type = methods.find(call);
    for (const auto& [who, role] : Callers()) {
      const char letter = kLetters.at(role);
      for (const std::string project : {"projects/mine", "projects/theirs"}) {
        const auto request = type == methods.end() ? nullptr : RequestAbout(type->second, project);
        const absl::Status status = CheckRight(who, call, request.get());
        const bool anywhere = letters.find(letter) != std::string::npos;
        const bool at_home = letters.find(static_cast<char>(std::toupper(letter))) != std::string::npos;
        const bool expected = anywhere || (at_home && project == "projects/mine");
        const std::string about = absl::StrCat(call, " by ", EnumText(role), " ", NameOf(who), " in ", project);
        EXPECT_EQ(status.ok(), expected) << about << ": " << status;
        // Of another project whatever is asked for is not there.
        const auto code = at_home ? absl::StatusCode::kNotFound : absl::StatusCode::kPermissionDenied;
        if (!expected) {
          EXPECT_EQ(status.code(), code) << about << ": " << status;
        }
      }
    }
  }
}

TEST(Rights, WithoutARoleNothingMayBeDone) {
  for (const auto& [call, type] : Methods())
    EXPECT_TRUE(absl::IsPermissionDenied(CheckRight(Identity(), call, RequestAbout(type, "projects/mine").get()))) << call;
  EXPECT_TRUE(absl::IsPermissionDenied(CheckRight(Identity{.grants = {{.project = kAllProjects}}}, "/metrics", nullptr)));
}

// Every pair of roles that a user may have in two projects: what one may do in either is what that one says.
TEST(Rights, ARoleInOneProjectIsNoneInAnother) {
  const auto* const create = v1::CreateJobRequest::descriptor();
  const std::vector<v1::Role> roles = {v1::VIEWER, v1::EDITOR, v1::ADMIN};
  for (const v1::Role here : roles) {
    for (const v1::Role there : roles) {
      const Identity who = {.subject = "f3a1", .grants = {{here, "projects/here"}, {there, "projects/there"}}};
      for (const auto& [project, role] : {std::pair("projects/here", here), std::pair("projects/there", there)}) {
        const absl::Status status =
            CheckRight(who, "legoai.v1.ControlPlane/CreateJob", RequestAbout(create, project).get());
        EXPECT_EQ(status.ok(), role != v1::VIEWER) << EnumText(here) << " " << EnumText(there) << " in " << project;
        // It sees the project, so this is no secret.
        EXPECT_TRUE(status.ok() || absl::IsPermissionDenied(status)) << status;
        EXPECT_EQ(RoleIn(who, project), role);
      }
      const absl::Status elsewhere =
          CheckRight(who, "legoai.v1.ControlPlane/CreateJob", RequestAbout(create, "projects/elsewhere").get());
      const bool is_viewer = here == v1::VIEWER && there == v1::VIEWER;
      EXPECT_EQ(elsewhere.code(), is_viewer ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kNotFound) << elsewhere;
      // What is of no project goes by the highest.
      EXPECT_EQ(HighestRole(who), std::max(here, there));
      EXPECT_EQ(CheckRight(who, "legoai.v1.ControlPlane/Plan", nullptr).ok(), !is_viewer);
      EXPECT_FALSE(CheckRight(who, "legoai.v1.ControlPlane/DrainWorker", nullptr).ok());
      EXPECT_FALSE(CheckRight(who, "legoai.v1.WorkerService/Connect", nullptr).ok());
    }
  }
}

TEST(Rights, WhatIsNotInTheTableNobodyMayDo) {
  for (const char* call :
       {"", "GetJob", "legoai.v1.ControlPlane/DeleteEverything", "/v1/event", "legoai.v1.ControlPlane/getjob"}) {
    EXPECT_FALSE(HasRow(call)) << call;
    EXPECT_TRUE(absl::IsPermissionDenied(CheckRight(Of(v1::OPERATOR), call, nullptr))) << call;
    EXPECT_TRUE(absl::IsPermissionDenied(CheckRight(Anybody(), call, nullptr))) << call;
  }
}

TEST(Rights, OfAnotherProjectTheAnswerIsTheSameWhateverTheIdIs) {
  std::set<std::string> answers;
  for (const char* id : {"01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAW"}) {
    v1::GetJobRequest request;
    request.set_name(absl::StrCat("projects/theirs/jobs/", id));
    const absl::Status status = CheckRight(Of(v1::ADMIN), "legoai.v1.ControlPlane/GetJob", &request);
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    answers.insert(GetFieldViolation(status)->remedy());
  }
  EXPECT_EQ(answers.size(), 1u);
}

TEST(Rights, NamesThatOnlyBeginLikeAProjectAreNone) {
  const auto check = [](const std::string& name) {
    v1::GetJobRequest request;
    request.set_name(name);
    return CheckRight(Of(v1::VIEWER), "legoai.v1.ControlPlane/GetJob", &request);
  };
  EXPECT_TRUE(check("projects/mine/jobs/x").ok());
  for (const char* name : {"projects/mine2/jobs/x", "projects/mi/jobs/x", "projects/Mine/jobs/x", "projects/mine\n/jobs/x"})
    EXPECT_TRUE(absl::IsNotFound(check(name))) << name;
  for (const char* name : {"", "projects", "projects/", "projects//jobs/x", "projects/-/jobs/x", "jobs/x", "Projects/mine/jobs/x",
                           " projects/mine/jobs/x"})
    EXPECT_TRUE(absl::IsInvalidArgument(check(name))) << name;
  // Nor does a token of no project see anything.
  EXPECT_FALSE(Sees(Identity{.grants = {{v1::ADMIN, ""}}}, ""));
  EXPECT_FALSE(Sees(Of(v1::ADMIN), "projects/-"));
}

TEST(Rights, ATokenOfAllProjectsHasItsRoleInEach) {
  for (const char* project : {"projects/mine", "projects/theirs"}) {
    const auto get = RequestAbout(v1::GetJobRequest::descriptor(), project);
    const auto create = RequestAbout(v1::CreateJobRequest::descriptor(), project);
    EXPECT_TRUE(CheckRight(Of(v1::VIEWER, kAllProjects), "legoai.v1.ControlPlane/GetJob", get.get()).ok());
    const absl::Status status = CheckRight(Of(v1::VIEWER, kAllProjects), "legoai.v1.ControlPlane/CreateJob", create.get());
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  }
}

TEST(Rights, WorkersDoNotTellOfJobsOfOthers) {
  const auto make = [] {
    v1::ListWorkersResponse list;
    v1::Worker* worker = list.add_workers();
    for (const char* job : {"projects/mine/jobs/a", "projects/theirs/jobs/b", "projects/mine2/jobs/c"}) {
      worker->add_used()->set_job(job);
      worker->mutable_used(worker->used_size() - 1)->set_slots(3);
    }
    return list;
  };
  const auto jobs = [](const v1::Worker& worker) {
    std::vector<std::string> names;
    for (const v1::SlotUse& use : worker.used()) {
      EXPECT_EQ(use.slots(), 3);
      names.push_back(use.job());
    }
    return names;
  };
  using Names = std::vector<std::string>;
  v1::ListWorkersResponse list = make();
  HideOthers(Of(v1::VIEWER), &list);
  EXPECT_EQ(jobs(list.workers(0)), (Names{"projects/mine/jobs/a", "", ""}));
  v1::Worker worker = make().workers(0);
  HideOthers(Of(v1::EDITOR, "projects/theirs"), &worker);
  EXPECT_EQ(jobs(worker), (Names{"", "projects/theirs/jobs/b", ""}));
  worker = make().workers(0);
  HideOthers(Of(v1::OPERATOR), &worker);
  EXPECT_EQ(jobs(worker), jobs(make().workers(0)));
}

TEST(Rights, OtherProjectsAreNotListedAndOnesOwnAlwaysIs) {
  const auto seen = [](const Identity& who) {
    v1::ListProjectsResponse list;
    for (const char* name : {"projects/a", "projects/mine"}) list.add_projects()->set_name(name);
    HideOthers(who, &list);
    std::vector<std::string> names;
    for (const v1::Project& project : list.projects()) names.push_back(project.name());
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(seen(Of(v1::VIEWER)), Names{"projects/mine"});
  EXPECT_EQ(seen(Of(v1::ADMIN, "projects/new")), Names{"projects/new"});
  EXPECT_EQ(seen(Of(v1::AGENT, "")), Names());
  EXPECT_EQ(seen(Of(v1::VIEWER, "projects/-")), (Names{"projects/a", "projects/mine"}));
  EXPECT_EQ(seen(Anybody()), (Names{"projects/a", "projects/mine"}));
}

}  // namespace
}  // namespace legoai::access
