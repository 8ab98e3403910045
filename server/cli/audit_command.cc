// `lego audit`: who did what on a server that asks for tokens.
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/enum_text.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

// "unknown": nobody is known by what was shown. A user of the provider may be called like another, or like a token: the subject
// is who it is.
std::string CallerOf(const v1::AuditRecord& record) {
  if (!record.subject().empty()) {
    const bool is_its_name = record.user() == record.subject();
    return absl::StrCat("users/", record.user(), is_its_name ? "" : absl::StrCat(" (", record.subject(), ")"));
  }
  return record.token().empty() ? "unknown" : IdOf(record.token());
}

std::string RecordsTable(const v1::ListAuditRecordsResponse& records) {
  Table table({"<when", "<caller", "<role", "<call", "<on", "<from", "<outcome"});
  // The latest comes last, next to the prompt.
  for (int i = records.records_size() - 1; i >= 0; --i) {
    const v1::AuditRecord& record = records.records(i);
    const std::string role = record.role() == v1::ROLE_UNSPECIFIED ? "-" : EnumText(record.role());
    table.Add({TimeText(record.time_us()), CallerOf(record), role, IdOf(record.call()), record.resource(), record.remote(),
               record.outcome()});
  }
  return table.Text();
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  v1::ListAuditRecordsRequest request;
  ASSIGN_OR_RETURN(const auto limit, arguments.Integer("limit", 1, 1000));
  request.set_page_size(limit.value_or(0));
  request.set_contains(arguments.Text("contains"));
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  ASSIGN_OR_RETURN(const auto records, client->ListAuditRecords(request));
  if (arguments.format() == Format::kTable) {
    Print(records.records().empty() ? "no record matches\n" : RecordsTable(records));
    return kDone;
  }
  Tree list = Tree::array();
  for (const v1::AuditRecord& record : records.records()) list.push_back(ToTree(record));
  Print(TreeText(arguments.format(), list));
  return kDone;
}

}  // namespace

Command AuditCommand() {
  CommandSpec spec;
  spec.name = "audit";
  spec.summary = "Shows who changed what on a server that asks for tokens, and who was refused; for operators.";
  spec.options = {{"limit", "N", "the latest N records, at most 1000 (50)"},
                  {"contains", "TEXT", "in any of a record's texts: an id, a call, an address, an outcome"},
                  ServerOption()};
  spec.details = "As JSON and YAML the latest record comes first.";
  spec.example = "lego audit --contains PERMISSION_DENIED";
  return {spec, Run};
}

}  // namespace legoai::cli
