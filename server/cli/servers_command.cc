// `lego servers`: asks each server of --server, and says which one leads.
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/json/reflect.h"
#include "proto/server_list.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

struct Answer {
  std::string server;
  absl::StatusOr<v1::ServerInfo> info;
};

// One that stands still takes calls and does not answer.
constexpr absl::Duration kAnswerLimit = absl::Seconds(5);

absl::StatusOr<v1::ServerInfo> Ask(const std::string& server, const ChannelSecurity& security) {
  ASSIGN_OR_RETURN(auto servers, ServerList::Parse("--server", server));
  ASSIGN_OR_RETURN(const auto client, Client::Open(std::move(servers), security, absl::ZeroDuration(), kAnswerLimit));
  return client->GetServerInfo();
}

// All at once, so that it takes no longer than the slowest of them.
std::vector<Answer> AskAll(const ServerList& servers, const ChannelSecurity& security) {
  std::vector<Answer> answers;
  for (const std::string& server : servers.all()) answers.push_back({server, absl::UnknownError("was not asked")});
  std::vector<std::thread> asking;
  for (Answer& answer : answers) asking.emplace_back([&answer, &security] { answer.info = Ask(answer.server, security); });
  for (std::thread& one : asking) one.join();
  return answers;
}

// What a server over SQLite leaves out is that it stands alone.
std::string RoleOf(const v1::ServerInfo& info) {
  if (!info.has_leader() && info.leads()) return info.store() == "sqlite" ? "alone" : "leads";
  return info.leads() ? "leads" : "follows";
}

std::string LeaderOf(const v1::ServerInfo& info) {
  if (!info.has_leader()) return info.leads() ? "" : "nobody just now";
  const std::string& address = info.leader().address();
  return absl::StrCat(address.empty() ? "unknown address" : address, " (", info.leader().holder(), ")");
}

std::string AnswersTable(const std::vector<Answer>& answers) {
  Table table({"<server", "<role", "term", "<leader", "<build", "<store", "<started"});
  for (const auto& [server, info] : answers) {
    if (!info.ok()) {
      table.Add({server, "away", "", Printable(std::string(info.status().message())), "", "", ""});
      continue;
    }
    table.Add({server, RoleOf(*info), info->has_leader() ? absl::StrCat(info->leader().term()) : "", LeaderOf(*info),
               info->build_version(), info->store(), TimeText(info->start_time_us())});
  }
  return table.Text();
}

absl::StatusOr<int> Servers(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto address, ServerAddress(arguments));
  ASSIGN_OR_RETURN(const auto servers, ServerList::Parse("--server", address));
  ASSIGN_OR_RETURN(const auto security, ReadSecurity(arguments));
  const std::vector<Answer> answers = AskAll(servers, security);
  Tree list = Tree::array();
  bool all_answer = true;
  for (const auto& [server, info] : answers) {
    all_answer = all_answer && info.ok();
    Tree one = {{"server", server}, {"answers", info.ok()}};
    if (info.ok()) {
      one["info"] = ToTree(*info);
    } else {
      one["error"] = std::string(info.status().message());
    }
    list.push_back(std::move(one));
  }
  Print(arguments.format() == Format::kTable ? AnswersTable(answers) : TreeText(arguments.format(), list));
  return all_answer ? kDone : kFailed;
}

}  // namespace

Command ServersCommand() {
  CommandSpec spec;
  spec.name = "servers";
  spec.summary = "Asks each of several servers over one store whether it leads; exit code 1 where one does not answer.";
  spec.options = {ServerOption()};
  spec.example = "lego servers --server a:7420,b:7420";
  return {spec, Servers};
}

}  // namespace legoai::cli
