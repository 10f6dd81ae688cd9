// The AI SDK's `experimental_decide` over the Decisions API, unmodified.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOpenAI } from 'openai-provider-4';
import { experimental_decide as decide } from 'ai-7';

const provider = createOpenAI({ apiKey: 'x', baseURL: `${process.env.SERVER_URL}/v1` });

test('a state is decided', async () => {
  const { answers, usage } = await decide({
    model: provider.decisionModel('demo'),
    state: [{ type: 'text', text: 'Tom has 9 coins. Then he buys 6 more coins.' }],
    questions: {
      right: { type: 'boolean', instructions: 'Tom has 15 coins.' },
      thing: {
        type: 'choice',
        instructions: 'What does Tom have?',
        criteria: { coins: 'Money.', eggs: null },
      },
      amount: { type: 'score', instructions: 'How many?', criteria: ['none', 'some', 'many'] },
    },
  });
  const sum = (of) => Object.values(of).reduce((a, b) => a + b, 0);
  assert.ok(answers.right.probability >= 0 && answers.right.probability <= 1);
  assert.ok(['coins', 'eggs'].includes(answers.thing.choice));
  assert.ok(Math.abs(sum(answers.thing.probabilities) - 1) < 1e-9);
  assert.ok(answers.amount.score >= 0 && answers.amount.score <= 2);
  assert.equal(usage.outputTokens, 0);
  assert.ok(usage.inputTokens > 20);
});
