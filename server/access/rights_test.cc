// Every call times every role, written down once more by hand: what is added without a row here, or in the table, fails.
#include "server/access/rights.h"

#include <google/protobuf/descriptor_database.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/worker_service.pb.h"

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
  return {.token = "tokens/t",
          .role = role,
          .project = role == v1::OPERATOR ? kAllProjects
                     : role == v1::AGENT  ? ""
                                          : project};
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
    for (const auto& [role, letter] : kLetters) {
      for (const std::string project : {"projects/mine", "projects/theirs"}) {
        const auto request = type == methods.end() ? nullptr : RequestAbout(type->second, project);
        const absl::Status status = CheckRight(Of(role), call, request.get());
        const bool anywhere = letters.find(letter) != std::string::npos;
        const bool at_home = letters.find(static_cast<char>(std::toupper(letter))) != std::string::npos;
        const bool expected = anywhere || (at_home && project == "projects/mine");
        EXPECT_EQ(status.ok(), expected) << call << " by " << EnumText(role) << " in " << project << ": " << status;
        // Of another project whatever is asked for is not there.
        const auto code = at_home ? absl::StatusCode::kNotFound : absl::StatusCode::kPermissionDenied;
        if (!expected) {
          EXPECT_EQ(status.code(), code) << call << " by " << EnumText(role) << ": " << status;
        }
      }
    }
  }
}

TEST(Rights, WithoutARoleNothingMayBeDone) {
  for (const auto& [call, type] : Methods())
    EXPECT_TRUE(absl::IsPermissionDenied(CheckRight(Identity(), call, RequestAbout(type, "projects/mine").get()))) << call;
  EXPECT_TRUE(absl::IsPermissionDenied(CheckRight(Identity{.project = kAllProjects}, "/metrics", nullptr)));
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
  EXPECT_FALSE(Sees(Identity{.role = v1::ADMIN}, ""));
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

}  // namespace
}  // namespace legoai::access
