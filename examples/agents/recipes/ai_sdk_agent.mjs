// An agent of Vercel's AI SDK, which calls the Responses API with item_reference.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL });
const inputSchema = z.object({ a: z.number(), b: z.number() });
const multiply = tool({ description: "Multiply two numbers.", inputSchema, execute: ({ a, b }) => a * b });
const add = tool({ description: "Add two numbers.", inputSchema, execute: ({ a, b }) => a + b });
const { text } = await generateText({
  model: openai("any"),
  system: "Solve the task.",
  prompt: process.env.PROMPT,
  tools: { multiply, add },
  stopWhen: stepCountIs(10),
});
console.log(text);
