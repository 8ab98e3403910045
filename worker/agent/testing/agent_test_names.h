// Short names of tests of the agent as a process, in the namespace of the agent.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/directory.h"
#include "core/process/run_directory.h"
#include "worker/agent/testing/agent_fixture.h"

namespace legoai::agent {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using State = testing::ScriptedServer::State;

}  // namespace legoai::agent
