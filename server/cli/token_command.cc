// `lego token`: who may call a server.
#include <cstdio>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/process/secret_file.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

constexpr double kSecondsPerDay = 86400;

// "projects/default" of "default", and of itself.
std::string ProjectName(const std::string& text) {
  return text.empty() || absl::StartsWith(text, "projects/") ? text : "projects/" + text;
}

std::string StateOf(const v1::Token& token, int64_t now_us) {
  if (token.revoke_time_us() > 0) return "revoked";
  return token.expire_time_us() <= now_us ? "expired" : "counts";
}

std::string ScopeOf(const v1::Token& token) {
  if (token.role() == v1::AGENT) return "-";
  return token.project() == "projects/-" ? "all projects" : token.project();
}

std::string TokensTable(const v1::ListTokensResponse& tokens) {
  Table table({"<token", "<name", "<role", "<of", "<state", "<until", "<made by"});
  const int64_t now_us = absl::ToUnixMicros(absl::Now());
  for (const v1::Token& token : tokens.tokens()) {
    table.Add({IdOf(token.name()), token.display_name(), EnumText(token.role()), ScopeOf(token), StateOf(token, now_us),
               TimeText(token.revoke_time_us() > 0 ? token.revoke_time_us() : token.expire_time_us()),
               token.creator().empty()                        ? "the server"
               : absl::StartsWith(token.creator(), "tokens/") ? IdOf(token.creator())
                                                              : token.creator()});  // "users/...", which is no token's id
  }
  return table.Text();
}

absl::StatusOr<v1::CreateTokenRequest> ReadRequest(const Arguments& arguments) {
  v1::CreateTokenRequest request;
  const auto role = EnumFromText<v1::Role>(arguments.Text("role"));
  if (!role) {
    return FieldError("--role", arguments.Text("role"),
                      "must be viewer, editor, admin, operator or agent. Example: lego token create --role editor");
  }
  request.set_role(*role);
  const bool is_of_project = *role != v1::OPERATOR && *role != v1::AGENT;
  if (arguments.Has("project")) {
    request.set_project(ProjectName(arguments.Text("project")));
  } else if (is_of_project) {
    ASSIGN_OR_RETURN(*request.mutable_project(), ProjectOf(arguments));
  }
  request.set_display_name(arguments.Text("name"));
  ASSIGN_OR_RETURN(const auto days, arguments.Integer("days", 1, 366));
  if (days) request.set_lifetime_seconds(static_cast<double>(*days) * kSecondsPerDay);
  return request;
}

absl::StatusOr<int> Create(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto request, ReadRequest(arguments));
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments.With("project", "default")));
  ASSIGN_OR_RETURN(const auto made, client->CreateToken(request));
  const v1::Token& token = made.token();
  if (arguments.Has("out")) {
    const std::string path = arguments.Text("out");
    // One whose secret nobody has is nobody's.
    if (absl::Status written = launch::WriteSecretFile("--out", path, made.secret()); !written.ok()) {
      v1::RevokeTokenRequest revoke;
      revoke.set_name(token.name());
      const auto revoked = client->RevokeToken(revoke);
      return Annotate(written, revoked.ok() ? "no token was made" : absl::StrCat("revoke ", token.name()));
    }
  }
  if (arguments.format() != Format::kTable) {
    Tree tree = ToTree(token);
    if (!arguments.Has("out")) tree["secret"] = made.secret();
    Print(TreeText(arguments.format(), tree));
    return kDone;
  }
  std::fprintf(stderr, "%s, %s%s, until %s%s\n", token.name().c_str(), EnumText(token.role()).c_str(),
               token.role() == v1::AGENT ? "" : (" of " + ScopeOf(token)).c_str(), TimeText(token.expire_time_us()).c_str(),
               arguments.Has("out") ? "; its secret is in the file" : "; its secret, which is shown this once:");
  if (!arguments.Has("out")) Print(made.secret() + "\n");
  return kDone;
}

absl::StatusOr<int> List(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  ASSIGN_OR_RETURN(const auto tokens, client->ListTokens({}));
  if (arguments.format() == Format::kTable) {
    Print(tokens.tokens().empty() ? "no tokens; make one: lego token create --role editor\n" : TokensTable(tokens));
    return kDone;
  }
  Tree list = Tree::array();
  for (const v1::Token& token : tokens.tokens()) list.push_back(ToTree(token));
  Print(TreeText(arguments.format(), list));
  return kDone;
}

absl::StatusOr<int> Revoke(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  v1::RevokeTokenRequest request;
  const std::string text = arguments.positional()[1];
  request.set_name(absl::StartsWith(text, "tokens/") ? text : "tokens/" + text);
  ASSIGN_OR_RETURN(const auto token, client->RevokeToken(request));
  Print(arguments.format() == Format::kTable ? absl::StrCat("revoked ", token.name(), "\n")
                                             : TreeText(arguments.format(), ToTree(token)));
  return kDone;
}

absl::Status CheckCall(const Arguments& arguments, const std::string& what) {
  const bool names = arguments.positional().size() == 2;
  if (what == "revoke" && !names) return FieldError("TOKEN", "", "is needed: `lego token list` shows them");
  if (what != "revoke" && names)
    return FieldError("TOKEN", arguments.positional()[1], absl::StrCat("is one word too many for `lego token ", what, "`"));
  for (const char* option : {"role", "project", "name", "days", "out"}) {
    if (what != "create" && arguments.Has(option))
      return FieldError(absl::StrCat("--", option), arguments.Text(option), "goes with `lego token create`");
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  const std::string what = arguments.positional()[0];
  if (what != "create" && what != "list" && what != "revoke")
    return FieldError("create|list|revoke", what, "must be one of these");
  RETURN_IF_ERROR(CheckCall(arguments, what));
  return what == "create" ? Create(arguments) : what == "list" ? List(arguments) : Revoke(arguments);
}

}  // namespace

Command TokenCommand() {
  CommandSpec spec;
  spec.name = "token";
  spec.summary = "Makes, lists and revokes the tokens with which users and agents call a server.";
  spec.positional = "create|list|revoke";
  spec.least_positional = 1;
  spec.most_positional = 2;
  spec.options = {{"role", "viewer|editor|admin|operator|agent", "what its holder may do"},
                  {"project", "PROJECT",
                   "in which; LEGOAI_PROJECT or default if it is not given; - for all, which only operators can give"},
                  {"name", "TEXT", "whose it is, or what for"},
                  {"days", "N", "until it expires, at most 366 (90)"},
                  {"out", "FILE", "for the secret, readable by you alone, instead of printing it"},
                  ServerOption()};
  spec.details =
      "`lego token revoke TOKEN` ends one, and what is open with it. A viewer sees, an editor also submits, cancels and\n"
      "plans, an admin also makes tokens, each in one project; an operator does everything everywhere; an agent trains.";
  spec.example = "lego token create --role editor --project default --name anna --out anna.token";
  return {spec, Run};
}

}  // namespace legoai::cli
