#include "simulator/engine/simulate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>

#include "proto/testing/assert_ok.h"

namespace legoai::sim {
namespace {

// A simulator that looks at everything at every moment: after each change it recomputes what may run and at which rate, and goes
// on to the next end or release. Quadratic, and written without the engine's queues of events.
std::vector<double> SlowFinishTimes(const Program& program) {
  const auto& tasks = program.tasks();
  size_t count = tasks.size();
  std::vector<double> remaining(count), finish(count, -1);
  std::vector<TaskId> partner(count, kNoTask);
  for (auto [a, b] : program.joins()) partner[a] = b, partner[b] = a;
  for (size_t i = 0; i < count; ++i) {
    remaining[i] = partner[i] == kNoTask ? tasks[i].seconds : std::max(tasks[i].seconds, tasks[partner[i]].seconds);
  }
  double now = 0;
  auto free_alone = [&](TaskId id) {
    if (tasks[id].previous != kNoTask && finish[tasks[id].previous] < 0) return false;
    for (auto [task, on] : program.waits()) {
      if (task == id && finish[on] < 0) return false;
    }
    return tasks[id].release <= now + 1e-12;
  };
  for (;;) {
    std::vector<bool> runs(count, false);
    std::vector<double> load(program.capacities().size(), 0.0);
    for (TaskId id = 0; id < count; ++id) {
      runs[id] = finish[id] < 0 && free_alone(id) && (partner[id] == kNoTask || free_alone(partner[id]));
      if (!runs[id]) continue;
      for (uint32_t d = 0; d < tasks[id].demand_count; ++d) {
        const Demand& demand = program.demands()[tasks[id].first_demand + d];
        load[demand.resource] += demand.share;
      }
    }
    auto rate = [&](TaskId id) {
      double slowest = 1;
      for (TaskId member : {id, partner[id]}) {
        if (member == kNoTask) continue;
        for (uint32_t d = 0; d < tasks[member].demand_count; ++d) {
          uint32_t resource = program.demands()[tasks[member].first_demand + d].resource;
          slowest = std::min(slowest, program.capacities()[resource] / std::max(load[resource], program.capacities()[resource]));
        }
      }
      return slowest;
    };
    double step = HUGE_VAL;
    for (TaskId id = 0; id < count; ++id) {
      if (runs[id]) step = std::min(step, remaining[id] / rate(id));
      if (finish[id] < 0 && tasks[id].release > now + 1e-12) step = std::min(step, tasks[id].release - now);
    }
    if (step == HUGE_VAL) return finish;
    now += step;
    for (TaskId id = 0; id < count; ++id) {
      if (!runs[id]) continue;
      remaining[id] -= step * rate(id);
      if (remaining[id] < 1e-9) finish[id] = now;
    }
  }
}

Program RandomProgram(uint32_t seed) {
  std::mt19937 random(seed);
  auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Program program;
  uint32_t queues = 1 + below(5), resources = below(4);
  for (uint32_t q = 0; q < queues; ++q) program.AddQueue("q" + std::to_string(q));
  for (uint32_t r = 0; r < resources; ++r) program.AddResource("r" + std::to_string(r), 0.5 + 0.5 * below(4));
  uint32_t count = 5 + below(25);
  TaskId joined = 0;  // tasks before it are in joins or behind them: joining in order makes no cycle
  for (uint32_t i = 0; i < count; ++i) {
    TaskId id = program.AddTask(below(queues), 0.25 * below(9), below(4) == 0 ? 0.5 * below(20) : 0);
    for (uint32_t r = 0; r < resources; ++r) {
      if (below(2) == 0) program.AddDemand({r, 0.25f * static_cast<float>(1 + below(4))});
    }
    for (uint32_t w = below(3); w > 0 && id > 0; --w) program.AddWait(id, below(id));
    if (id > joined && below(3) == 0 && program.tasks()[id].queue != program.tasks()[id - 1].queue) {
      bool waits_for_it = false;
      for (auto [task, on] : program.waits()) waits_for_it |= task == id && on == id - 1;
      if (!waits_for_it) program.Join(id, id - 1), joined = id + 1;
    }
  }
  return program;
}

TEST(SimulateTest, RandomProgramsAgreeWithTheSlowSimulator) {
  for (uint32_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Program program = RandomProgram(seed);
    ASSERT_OK_AND_ASSIGN(auto schedule, Simulate(program));
    std::vector<double> expected = SlowFinishTimes(program);
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(schedule.finish[i], expected[i], 1e-6) << "task " << i;
  }
}

TEST(SimulateTest, EveryStartIsExplained) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Program program = RandomProgram(seed);
    ASSERT_OK_AND_ASSIGN(auto schedule, Simulate(program));
    for (TaskId id = 0; id < program.tasks().size(); ++id) {
      TaskId blocker = schedule.blocker[id];
      if (blocker != kNoTask) {
        EXPECT_EQ(schedule.finish[blocker], schedule.start[id]);
      } else {
        bool released = schedule.start[id] == program.tasks()[id].release;
        for (auto [a, b] : program.joins()) {
          if (a == id || b == id) released |= schedule.start[id] == program.tasks()[a == id ? b : a].release;
        }
        EXPECT_TRUE(released || schedule.start[id] == 0);
      }
    }
  }
}

TEST(SimulateTest, SharedResourceSlowsBothAndSpeedsUpAgain) {
  Program program;
  uint32_t a = program.AddQueue("a"), b = program.AddQueue("b"), core = program.AddResource("core", 1);
  program.AddTask(a, 2, 0, {{core, 1}});
  program.AddTask(b, 1, 1, {{core, 1}});
  ASSERT_OK_AND_ASSIGN(auto schedule, Simulate(program));
  EXPECT_NEAR(schedule.finish[0], 3, 1e-12);  // alone for 1, then half speed
  EXPECT_NEAR(schedule.finish[1], 3, 1e-12);
}

TEST(SimulateTest, JoinedTasksStartWhenBothCan) {
  Program program;
  uint32_t a = program.AddQueue("a"), b = program.AddQueue("b");
  program.AddTask(a, 5);
  TaskId send = program.AddTask(a, 1), receive = program.AddTask(b, 2), after = program.AddTask(b, 1);
  program.Join(send, receive);
  ASSERT_OK_AND_ASSIGN(auto schedule, Simulate(program));
  EXPECT_EQ(schedule.start[receive], 5);
  EXPECT_EQ(schedule.finish[send], 7);
  EXPECT_EQ(schedule.finish[after], 8);
  EXPECT_EQ(schedule.blocker[receive], 0u);
}

TEST(SimulateTest, DeadlockNamesQueuesAndWhatTheyWaitFor) {
  Program program;
  uint32_t left = program.AddQueue("stage 0 send"), right = program.AddQueue("stage 1 send");
  TaskId a1 = program.AddTask(left, 1), a2 = program.AddTask(left, 1), b1 = program.AddTask(right, 1),
         b2 = program.AddTask(right, 1);
  program.Join(a1, b2);
  program.Join(a2, b1);
  auto schedule = Simulate(program, [](TaskId id) { return "operator " + std::to_string(id); });
  EXPECT_EQ(schedule.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(schedule.status().message(),
            "deadlock: queue stage 0 send (operator 0) waits for its partner stage 1 send (operator 3); queue stage 1 send "
            "(operator 2) waits for its partner stage 0 send (operator 1)");
  Program circle;
  uint32_t p = circle.AddQueue("p"), q = circle.AddQueue("q");
  TaskId x = circle.AddTask(p, 1), y = circle.AddTask(q, 1);
  circle.AddWait(x, y);
  circle.AddWait(y, x);
  EXPECT_EQ(Simulate(circle).status().message(),
            "deadlock: queue p (task 0) waits for q (task 1); queue q (task 1) waits for p (task 0)");
}

TEST(SimulateTest, RefusesWrongPrograms) {
  Program program;
  uint32_t q = program.AddQueue("q");
  program.AddTask(q, 1);
  program.AddWait(0, 7);
  EXPECT_EQ(Simulate(program).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Simulate(Program())->seconds, 0);
}

// They would be events that never come.
TEST(SimulateTest, RefusesTimesThatAreNotFinite) {
  const double nan = std::nan("");
  for (const double wrong : {nan, static_cast<double>(INFINITY), -1.0}) {
    Program task, release, share, capacity;
    task.AddTask(task.AddQueue("q"), wrong);
    release.AddTask(release.AddQueue("q"), 1, wrong);
    const uint32_t resource = share.AddResource("r", 1);
    share.AddTask(share.AddQueue("q"), 1, 0, {{resource, static_cast<float>(wrong)}});
    for (const Program* program : {&task, &release, &share}) {
      EXPECT_EQ(Simulate(*program).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    }
  }
  Program program;
  program.AddResource("r", 0);
  EXPECT_EQ(Simulate(program).status().code(), absl::StatusCode::kInvalidArgument);
}

// Prints tasks per second; asserts only the result. Eight queues, a wait in four tasks, two shared resources.
TEST(SimulateTest, AMillionTasks) {
  Program program;
  std::mt19937 random(1);
  for (int q = 0; q < 8; ++q) program.AddQueue("q");
  uint32_t core = program.AddResource("core", 1), link = program.AddResource("link", 1);
  for (uint32_t i = 0; i < 1000000; ++i) {
    TaskId id = program.AddTask(i % 8, 1 + random() % 4, 0, {{i % 8 == 0 ? core : link, 0.5f}});
    if (i % 4 == 0 && id > 100) program.AddWait(id, id - 1 - random() % 100);
  }
  auto begin = std::chrono::steady_clock::now();
  auto schedule = Simulate(program);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_TRUE(schedule.ok());
  EXPECT_GT(schedule->seconds, 125000);
  std::printf("%.1f million tasks per second\n", 1 / seconds);
}

}  // namespace
}  // namespace legoai::sim
