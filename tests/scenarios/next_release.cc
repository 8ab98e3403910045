// Turns the server that it is linked with into one of a later release, whose tables are one version newer: the linker makes calls
// of PostgresMigrations() calls of this one (--wrap, in BUILD).
#include <span>
#include <string_view>
#include <vector>

// legoai::store::PostgresMigrations()
extern "C" std::span<const std::string_view> __real__ZN6legoai5store18PostgresMigrationsEv();

extern "C" std::span<const std::string_view> __wrap__ZN6legoai5store18PostgresMigrationsEv() {
  // As releases have them: another column in tables that an older server reads, and another table.
  static const auto* const migrations = [] {
    const auto known = __real__ZN6legoai5store18PostgresMigrationsEv();
    auto* const more = new std::vector<std::string_view>(known.begin(), known.end());
    more->push_back(
        "ALTER TABLE jobs ADD COLUMN next_release BIGINT NOT NULL DEFAULT 0;"
        "ALTER TABLE workers ADD COLUMN next_release TEXT;"
        "CREATE TABLE next_release (name TEXT PRIMARY KEY)");
    return more;
  }();
  return *migrations;
}
